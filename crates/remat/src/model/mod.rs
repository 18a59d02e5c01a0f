//! The models: one table that the command line, the documentation and the tests walk.
//!
//! In: a model's name and its options. Out: a [`Model`], built from the public layers of [`crate::nn`], whose inputs are
//! `input` and `labels`. Parameters are named as in PyTorch's `state_dict`, so weight files can be exchanged.
//! Adding a model: one file with its options and its `build`, and one entry in [`MODELS`].

mod bert;
mod gpt;
mod mlp;
mod resnet;
mod sequence;
mod settings;
mod transformer;
mod unet;

pub use settings::{OptionInfo, OptionKind, Options, Settings};

use crate::error::{Error, Result};
use crate::nn::{Loss, Model, Net};
use crate::optimizer::Optimizer;

/// An entry of the table.
#[derive(Debug)]
pub struct ModelInfo {
    /// As typed.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// What can be set, with defaults.
    pub options: &'static [OptionInfo],
    /// The optimizer used when none is named.
    pub optimizer: Optimizer,
    /// The network of checked options.
    network: Network,
}

/// Builds the network of checked options.
type Network = for<'g> fn(&Settings, &'g Net) -> Result<Loss<'g>>;

/// All models.
pub const MODELS: &[ModelInfo] = &[
    ModelInfo {
        name: "mlp",
        summary: "fully connected layers with ReLU",
        options: mlp::OPTIONS,
        optimizer: Optimizer::adam(1e-3),
        network: mlp::build,
    },
    resnet_info("resnet18", "residual network, 11.7 M parameters", |s, g| {
        resnet::build(s, &resnet::RESNET18, g)
    }),
    resnet_info("resnet34", "residual network, 21.8 M parameters", |s, g| {
        resnet::build(s, &resnet::RESNET34, g)
    }),
    resnet_info("resnet50", "residual network, 25.6 M parameters", |s, g| {
        resnet::build(s, &resnet::RESNET50, g)
    }),
    resnet_info("resnet101", "residual network, 44.5 M parameters", |s, g| {
        resnet::build(s, &resnet::RESNET101, g)
    }),
    resnet_info("resnet152", "residual network, 60.2 M parameters", |s, g| {
        resnet::build(s, &resnet::RESNET152, g)
    }),
    ModelInfo {
        name: "unet",
        summary: "segmentation network with skip connections, 31.0 M parameters",
        options: unet::OPTIONS,
        optimizer: Optimizer::adam(1e-3),
        network: unet::build,
    },
    ModelInfo {
        name: "transformer",
        summary: "pre-norm encoder that predicts a token per position, 49.7 M parameters",
        options: transformer::OPTIONS,
        optimizer: Optimizer::adam(1e-3),
        network: transformer::build,
    },
    ModelInfo {
        name: "bert",
        summary: "post-norm encoder with the masked-language-model head, 109.5 M parameters",
        options: bert::OPTIONS,
        optimizer: Optimizer::adamw(1e-4),
        network: bert::build,
    },
    ModelInfo {
        name: "gpt",
        summary: "decoder language model with RMS norm, query-key norm and tied embedding, 204.6 M parameters",
        options: gpt::OPTIONS,
        optimizer: Optimizer::adamw(3e-4),
        network: gpt::build,
    },
];

const fn resnet_info(name: &'static str, summary: &'static str, network: Network) -> ModelInfo {
    ModelInfo { name, summary, options: resnet::OPTIONS, optimizer: Optimizer::adam(1e-3), network }
}

impl ModelInfo {
    /// The model with these options.
    pub fn build(&self, options: &Options) -> Result<Model> {
        let settings = Settings::check(self.name, self.options, options)?;
        // The name tells one problem from another: a plan for batch 8 is none for batch 16.
        Model::build_known(settings.to_string(), |g| (self.network)(&settings, g))
    }
}

impl Model {
    /// A model of [`MODELS`] with options, such as `[("layers", 6)]`; `()` stands for all defaults.
    ///
    /// ```
    /// use remat::nn::Model;
    ///
    /// let model = Model::registry("gpt", [("layers", 2), ("dim", 64)])?;
    /// assert!(model.name().starts_with("gpt(batch=1,"));
    /// let model = Model::registry("unet", ())?;
    /// assert_eq!(model.n_parameters(), 31_037_698);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn registry(name: &str, options: impl Into<Options>) -> Result<Model> {
        find(name)?.build(&options.into())
    }
}

/// The model of this name. The error lists the known ones and points at the nearest.
pub fn find(name: &str) -> Result<&'static ModelInfo> {
    MODELS.iter().find(|m| m.name == name).ok_or_else(|| {
        let mut known = MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
        let nearest = MODELS.iter().map(|m| (strsim::damerau_levenshtein(m.name, name), m.name)).min();
        if let Some((_, nearest)) = nearest.filter(|&(distance, _)| distance <= 2) {
            known.push_str(&format!(" (did you mean `{nearest}`?)"));
        }
        Error::UnknownModel { name: name.to_owned(), known }
    })
}

/// The listed model and the options that a built model's name tells; `None` for a model that is not listed.
pub fn of_name(name: &str) -> Option<(&'static ModelInfo, Options)> {
    let (model, options) = name.strip_suffix(')')?.split_once('(')?;
    let info = MODELS.iter().find(|info| info.name == model)?;
    let mut typed = Options::new();
    for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=')?;
        typed.set(name, value);
    }
    Some((info, typed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_parameters(name: &str) -> usize {
        find(name).unwrap().build(&Options::new()).unwrap().n_parameters()
    }

    #[test]
    fn parameter_counts_equal_those_of_pytorch() {
        assert_eq!(n_parameters("resnet18"), 11_689_512);
        assert_eq!(n_parameters("resnet34"), 21_797_672);
        assert_eq!(n_parameters("resnet50"), 25_557_032);
        assert_eq!(n_parameters("resnet101"), 44_549_160);
        assert_eq!(n_parameters("resnet152"), 60_192_808);
        assert_eq!(n_parameters("unet"), 31_037_698);
        assert_eq!(n_parameters("transformer"), 49_730_864);
        assert_eq!(n_parameters("bert"), 109_514_298);
        assert_eq!(n_parameters("gpt"), 204_583_936);
    }

    #[test]
    fn every_model_is_well_formed_and_ends_in_a_scalar_loss() {
        for model in MODELS {
            let built = model.build(&Options::new()).unwrap();
            let graph = built.graph();
            assert_eq!(graph.verify(), Vec::new(), "{}", model.name);
            let [loss] = graph.outputs[..] else {
                panic!("{} has {} outputs", model.name, graph.outputs.len())
            };
            assert_eq!(graph.values[loss].ty.numel(), 1, "{}", model.name);
            assert_eq!(built.roles().loss, loss, "{}", model.name);
            let inputs = graph.sources.iter().filter(|s| !graph.values[s.value].kind.is_state());
            assert_eq!(
                inputs.map(|s| s.name.as_str()).collect::<Vec<_>>(),
                ["input", "labels"],
                "{}",
                model.name
            );
        }
    }

    #[test]
    fn an_unknown_model_is_named_with_its_nearest_neighbour() {
        let message = find("resnet5").unwrap_err().to_string();
        assert!(message.starts_with("there is no model `resnet5`; known models: mlp, resnet18"), "{message}");
        assert!(message.ends_with("(did you mean `resnet50`?)"), "{message}");
        assert!(!find("llama").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let message = |name: &str, options| find(name).unwrap().build(&options).unwrap_err().to_string();
        for name in ["transformer", "bert", "gpt"] {
            assert!(
                message(name, Options::new().with("heads", 7)).contains("option `heads` must divide `dim`")
            );
        }
        assert!(message("unet", Options::new().with("image", 40)).contains("must be a multiple of 16"));
        let lonely = Options::new().with("batch", 1).with("image", 32);
        assert_eq!(
            message("resnet18", lonely),
            "batch_norm at `layer4.0.bn1`: training needs more than one value per channel; use a larger batch or image"
        );
    }

    #[test]
    fn sizes_that_cannot_be_addressed_are_refused() {
        let huge = i32::MAX;
        let cases = [
            ("resnet50", Options::new().with("batch", huge).with("image", huge)),
            ("gpt", Options::new().with("seq", huge).with("dim", 1 << 30).with("heads", 1)),
            ("mlp", Options::new().with("width", huge).with("layers", 4096)),
            ("unet", Options::new().with("width", huge)),
            ("bert", Options::new().with("batch", huge).with("vocab", huge)),
            ("transformer", Options::new().with("ff", huge).with("layers", 4096).with("batch", huge)),
        ];
        for (name, options) in cases {
            let error = find(name).unwrap().build(&options).unwrap_err().to_string();
            assert!(error.contains("too large to address"), "{name}: {error}");
        }
    }
}
