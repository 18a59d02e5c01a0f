//! Steps of several passes that meet bad data: nothing is lost where it can be known before the first pass, and what is left where
//! it cannot is neither trained on nor saved.

use remat::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes of a step.
const N_PASSES: u64 = 3;

/// Numbers that depend on the batch. One batch is bad, which a step may be told before its first pass or not.
#[derive(Clone, Debug)]
struct Moody {
    /// The number of the bad batch; 0 for none.
    bad: Arc<AtomicU64>,
    tells: bool,
}

impl Moody {
    fn new(tells: bool) -> Moody {
        Moody { bad: Arc::default(), tells }
    }

    fn is_bad(&self, batch: &Batch<'_>) -> remat::Result<()> {
        if self.bad.load(Ordering::Relaxed) != batch.number() {
            return Ok(());
        }
        let message = "is bad".to_owned();
        Err(remat::Error::TrainingData { place: format!("batch {}", batch.number()), message })
    }
}

impl Batches for Moody {
    fn fill(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
        self.is_bad(batch)?;
        let number = batch.number() as usize;
        let mixed = |i: usize| ((i + 5 * number) % 7) as f32 - 3.0;
        batch.floats("input")?.iter_mut().enumerate().for_each(|(i, x)| *x = mixed(i));
        batch.integers("labels")?.iter_mut().enumerate().for_each(|(i, label)| *label = i as i32 % 3);
        Ok(())
    }

    fn check(&mut self, batch: &mut Batch<'_>) -> remat::Result<()> {
        if self.tells { self.is_bad(batch) } else { Ok(()) }
    }
}

/// Batch norm changes its statistics in every pass, so that a failed step leaves a state of its own.
fn trainer(data: Moody) -> Trainer {
    let model = Model::build("small", |g| {
        let labels = g.labels("labels", [8], 3);
        let h = g.input("input", [8, 4, 4, 2]).conv2d("conv", Conv::same(4, 3)).batch_norm("bn").relu();
        h.global_avg_pool().linear("fc", 3).cross_entropy(labels)
    });
    let optimizer = Optimizer { micro_batches: N_PASSES, ..adam(1e-2) };
    let training = Training::new(model.expect("a model")).optimizer(optimizer).data(data);
    training.machine(Machine::nominal(1)).threads(1).compile().expect("memory")
}

/// The bytes of the checkpoint after so many steps that nothing disturbed.
fn undisturbed(n_steps: u64, folder: &Path) -> Vec<u8> {
    let mut trainer = trainer(Moody::new(true));
    trainer.run(n_steps).expect("good data");
    bytes(trainer.save(folder))
}

fn bytes(saved: remat::Result<PathBuf>) -> Vec<u8> {
    std::fs::read(saved.expect("a checkpoint")).expect("the file")
}

#[test]
fn bad_data_that_is_known_before_a_step_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let right = undisturbed(3, &folder.path().join("undisturbed"));
    for pass in 1..=N_PASSES {
        let data = Moody::new(true);
        let mut trainer = trainer(data.clone());
        trainer.run(2).expect("good data");
        data.bad.store(2 * N_PASSES + pass, Ordering::Relaxed);
        let message = trainer.step().expect_err("a bad batch").to_string();
        assert!(message.contains(&format!("batch {}", 2 * N_PASSES + pass)), "{message}");
        assert_eq!(trainer.steps_done(), 2);
        // What the steps before have given can be saved, and the step can be tried again.
        let run = folder.path().join(format!("run-{pass}"));
        trainer.save(&run).expect("the state after step 2");
        data.bad.store(0, Ordering::Relaxed);
        trainer.step().expect("good data");
        assert!(bytes(trainer.save(&run)) == right, "a bit changed after a bad batch in pass {pass}");
    }
}

#[test]
fn what_a_step_that_failed_in_its_middle_has_left_is_of_no_use_to_anyone() {
    let folder = tempfile::tempdir().expect("a folder");
    let right = undisturbed(3, &folder.path().join("undisturbed"));
    let data = Moody::new(false);
    let mut trainer = trainer(data.clone());
    let run = folder.path().join("run");
    trainer.run(2).expect("good data");
    trainer.save(&run).expect("a checkpoint");
    data.bad.store(2 * N_PASSES + 2, Ordering::Relaxed);
    assert!(matches!(trainer.step(), Err(remat::Error::TrainingData { .. })));
    data.bad.store(0, Ordering::Relaxed);
    let is_lost = |error: remat::Error| {
        let message = error.to_string();
        assert!(matches!(error, remat::Error::StateLost { .. }), "{message}");
        assert!(message.contains("step 3") && message.contains("the last checkpoint"), "{message}");
    };
    is_lost(trainer.step().map(drop).expect_err("no state to train on"));
    is_lost(trainer.evaluate(1).map(drop).expect_err("no state to evaluate"));
    is_lost(trainer.save(&run).map(drop).expect_err("no state to save"));
    is_lost(trainer.save(folder.path().join("other")).map(drop).expect_err("no state to save"));
    assert!(!folder.path().join("other").exists(), "nothing is begun for it");
    // The last checkpoint brings it back.
    assert_eq!(trainer.resume(&run).expect("a checkpoint"), 2);
    trainer.step().expect("good data");
    assert!(bytes(trainer.save(&run)) == right, "a bit changed after the state was brought back");
}
