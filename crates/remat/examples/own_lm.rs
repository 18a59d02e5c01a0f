//! A language model written with the library, on a text file, trained within a budget; then it writes.
//! Run it with `cargo run --release --example own_lm -- book.txt`; without a file it learns this program.

use remat::prelude::*;

const BATCH: usize = 16;
const SEQ: usize = 64;
const DIM: usize = 96;

/// A decoder with learned positions and a head of its own.
fn decoder(g: &Net, vocabulary: usize) -> Loss<'_> {
    let tokens = g.tokens("input", [BATCH, SEQ], vocabulary);
    let labels = g.labels("labels", [BATCH, SEQ], vocabulary);
    let positions = g.embedding("positions", Table::new(SEQ, DIM));
    let mut h = tokens.embedding("tokens", Table::new(vocabulary, DIM)).add_positions(positions);
    for i in 0..3 {
        h = h.scope(format!("layers.{i}"), |h| {
            let attended =
                h.rms_norm("norm1").linear("qkv", 3 * DIM).packed_attention(Attention::heads(4).causal());
            let h = h + attended.linear("out", DIM).dropout(0.1);
            h + h.rms_norm("norm2").linear("up", 4 * DIM).gelu().linear("down", DIM).dropout(0.1)
        });
    }
    h.rms_norm("norm").linear_cross_entropy("head", vocabulary, labels)
}

fn main() -> remat::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| file!().to_owned());
    let folder = arguments.next().unwrap_or_else(|| "runs/own-lm".to_owned());
    let text = Text::file(&file, Tokenizer::Bytes)?;
    let vocabulary = text.vocabulary();
    let model = Model::build("own lm", |g| decoder(g, vocabulary))?;
    let mut training = Training::new(model).optimizer(adamw(2e-3)).data(text).budget("50%").compile()?;
    println!("{}", training.plan());
    for step in training.steps(60) {
        let step = step?;
        if step.step % 10 == 0 {
            println!("{:4} {:.4}", step.step, step.loss);
        }
    }
    training.save(&folder)?;
    let mut writer = Inference::load(&folder)?;
    println!("{}", writer.generate("fn ", &Sampling::default().tokens(100).temperature(0.7))?);
    Ok(())
}
