//! A convolutional network written with the library, trained within half of its memory on pictures that it makes itself.
//! Run it with `cargo run --release --example own_cnn`.

use remat::prelude::*;

const BATCH: usize = 32;

/// Stripes: upright ones are class 0, level ones class 1, slanted ones class 2.
#[derive(Clone, Debug)]
struct Stripes;

impl Batches for Stripes {
    fn fill(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
        let offset = if batch.part() == Part::HeldOut { 7 } else { batch.number() as usize };
        for (i, image) in batch.floats("input")?.chunks_exact_mut(16 * 16 * 3).enumerate() {
            stripes(i % 3, offset + i, image);
        }
        batch.integers("labels")?.iter_mut().enumerate().for_each(|(i, label)| *label = (i % 3) as i32);
        Ok(())
    }
}

fn stripes(class: usize, shift: usize, image: &mut [f32]) {
    for (at, pixel) in image.chunks_exact_mut(3).enumerate() {
        let (row, column) = (at / 16, at % 16);
        let along = [column, row, row + column][class] + shift;
        pixel.fill(if along % 6 < 3 { 1.0 } else { -1.0 });
    }
}

fn cnn(g: &Net) -> Loss<'_> {
    let labels = g.labels("labels", [BATCH], 3);
    let mut h = g.input("input", [BATCH, 16, 16, 3]);
    for i in 0..6 {
        h = h.scope(format!("block.{i}"), |h| h.conv2d("conv", Conv::same(16, 3)).batch_norm("bn").relu());
    }
    h.global_avg_pool().dropout(0.1).linear("fc", 3).cross_entropy(labels)
}

fn main() -> remat::Result<()> {
    let model = Model::build("stripes", cnn)?;
    let mut training = Training::new(model).optimizer(adam(3e-3)).data(Stripes).budget("50%").compile()?;
    println!("{}", training.plan());
    for step in training.steps(40) {
        let step = step?;
        println!("{:3} {:.4} {}", step.step, step.loss, step.stats.peak);
    }
    println!("held out: {:?}", training.evaluate(4)?);
    let folder = std::env::args().nth(1).unwrap_or_else(|| "runs/stripes".to_owned());
    training.save(&folder)?;
    let mut image = vec![0.0; 16 * 16 * 3];
    stripes(1, 4, &mut image);
    println!("level stripes are class {:?}", Inference::load(&folder)?.predict(&image)?.top(1));
    Ok(())
}
