//! `remat doctor`: what this machine offers, and whether anything that remat uses is missing.

use crate::answer::Answer;
use crate::format::{facts, seconds};
use crate::output::{Output, Paint, Report};
use crate::{memory, speeds, threads};
use anyhow::Result;
use clap::Args;
use remat::isa::{self, Isa};
use remat::profile::{Machine, Origin, StoreSpeed, Way};
use remat::store::{Kind, PAGE, Setup, Store};
use remat_plan::Bytes;
use serde::Serialize;
use std::borrow::Cow;
use std::num::NonZeroUsize;

/// Reports what this machine offers: processor, speeds, memory.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Threads to measure with; by default as many as the machine runs at once.
    #[arg(long, value_name = "N", value_parser = threads::parse)]
    threads: Option<NonZeroUsize>,
    /// Measure the speeds again instead of using the ones measured before.
    #[arg(long)]
    remeasure: bool,
    /// Measure a store as well: a directory for a scratch file, or `host`. Give it twice for two stores.
    #[arg(long, value_name = "DIR|host")]
    store: Vec<Kind>,
}

#[derive(Serialize)]
struct Health {
    version: &'static str,
    system: String,
    cpu_features: Vec<&'static str>,
    /// What kernels use of them.
    instruction_set: &'static str,
    threads_available: usize,
    machine: Machine,
    stores: Vec<StoreHealth>,
    memory_total_bytes: Option<Bytes>,
    memory_available_bytes: Option<Bytes>,
    memory_limit_bytes: Option<Bytes>,
    peak_resident_is_readable: bool,
    speeds_file: String,
    advice: Vec<Cow<'static, str>>,
}

/// A store, as it is beside running kernels.
#[derive(Serialize)]
struct StoreHealth {
    store: String,
    speed: StoreSpeed,
    speeds_file: String,
    /// Where it is not what a store promises.
    warning: Option<String>,
}

impl StoreHealth {
    fn of(kind: &Kind, n_threads: usize, remeasure: bool) -> Result<StoreHealth> {
        let measure = if remeasure { speeds::measure_store } else { speeds::of_store };
        let (speed, origin) = measure(kind, n_threads)?;
        let warning = Store::open(&Setup::new(kind.clone()), Bytes(PAGE))?.warning();
        Ok(StoreHealth { store: kind.to_string(), speed, speeds_file: describe(&origin), warning })
    }

    fn text(&self) -> String {
        let way = |way: &Way| {
            let rate = 1e-9 / way.seconds_per_byte;
            format!("{rate:.2} GB/s and {} for each copy", seconds(way.latency))
        };
        format!("to it {}, from it {}", way(&self.speed.out), way(&self.speed.back))
    }
}

impl Flags {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let n_threads = threads::usable(self.threads);
        let (machine, origin) =
            if self.remeasure { speeds::measure(n_threads)? } else { speeds::load(n_threads)? };
        let stores = self.store.iter().map(|kind| StoreHealth::of(kind, n_threads, self.remeasure));
        let stores = stores.collect::<Result<Vec<_>>>()?;
        let cpu_features = cpu_features();
        let peak_resident_is_readable = memory::peak_resident().is_some();
        let mut advice: Vec<Cow<'static, str>> = Vec::new();
        if cfg!(target_arch = "x86_64") && Isa::best() == Isa::Portable {
            advice.push("no AVX2 with FMA: portable kernels are used, many times slower".into());
        } else if isa::current() < Isa::best() {
            advice.push(
                "REMAT_ISA names a narrower instruction set than this processor has: same bits, but slower"
                    .into(),
            );
        }
        if !peak_resident_is_readable {
            advice.push("/proc/self/status is not readable: the process's own peak cannot be shown".into());
        }
        if cfg!(debug_assertions) {
            advice.push("this is a debug build: build with --release before measuring anything".into());
        }
        advice.extend(speeds::disturbance(&machine).map(Cow::from));
        out.report(&Health {
            version: env!("CARGO_PKG_VERSION"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cpu_features,
            instruction_set: isa::current().name(),
            threads_available: threads::available(),
            machine,
            stores,
            memory_total_bytes: memory::total(),
            memory_available_bytes: memory::available(),
            memory_limit_bytes: memory::group_limit(),
            peak_resident_is_readable,
            speeds_file: describe(&origin),
            advice,
        })?;
        Ok(Answer::Yes)
    }
}

/// Where the speeds come from.
fn describe(origin: &Origin) -> String {
    match origin {
        Origin::Kept(path) => format!("measured before, kept in {}", path.display()),
        Origin::Measured(path) => format!("measured now, kept in {}", path.display()),
        Origin::NotKept(reason) => format!("measured now, not kept: {reason}"),
    }
}

/// What the processor can do of what kernels may use.
fn cpu_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let features = [
            ("sse4.2", is_x86_feature_detected!("sse4.2")),
            ("avx", is_x86_feature_detected!("avx")),
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("f16c", is_x86_feature_detected!("f16c")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512dq", is_x86_feature_detected!("avx512dq")),
            ("avx512bw", is_x86_feature_detected!("avx512bw")),
            ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ];
        features.into_iter().filter(|feature| feature.1).map(|feature| feature.0).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

fn instruction_sets() -> String {
    Isa::available().map(Isa::name).collect::<Vec<_>>().join(", ")
}

impl Report for Health {
    const SCHEMA: &'static str = "remat.doctor/1";

    fn text(&self, paint: Paint) -> String {
        let known = |bytes: Option<Bytes>| bytes.map_or_else(|| "unknown".to_owned(), |b| b.to_string());
        let limit = self.memory_limit_bytes.map_or_else(|| "none".to_owned(), |b| b.to_string());
        let machine = &self.machine;
        let mut text = format!("{} {}\n", paint.heading("remat"), self.version);
        text += &facts([
            ("system", self.system.clone()),
            ("processor features", self.cpu_features.join(" ")),
            (
                "instruction set",
                format!("{} (REMAT_ISA chooses: {})", self.instruction_set, instruction_sets()),
            ),
            ("threads", format!("{} available, {} measured", self.threads_available, machine.n_threads)),
            ("matrix product", format!("{:.1} GFLOP/s", machine.flops / 1e9)),
            ("copy", format!("{:.1} GB/s", machine.bandwidth / 1e9)),
            ("calling a kernel", seconds(machine.overhead)),
            ("speeds", self.speeds_file.clone()),
            (
                "memory",
                format!(
                    "{} of {} available",
                    known(self.memory_available_bytes),
                    known(self.memory_total_bytes)
                ),
            ),
            ("memory limit of the control group", limit),
            (
                "peak of the process",
                (if self.peak_resident_is_readable { "readable" } else { "not readable" }).to_owned(),
            ),
        ]);
        for store in &self.stores {
            text += &facts([(&*format!("store {}", store.store), store.text())]);
            text += &facts([("", store.speeds_file.clone())]);
            if let Some(warning) = &store.warning {
                text += &format!("{} {warning}\n", paint.bad("note:"));
            }
        }
        if self.advice.is_empty() {
            return text + &format!("{}: nothing is missing\n", paint.good("ok"));
        }
        text + &self
            .advice
            .iter()
            .map(|advice| format!("{} {advice}\n", paint.bad("note:")))
            .collect::<String>()
    }
}
