//! One batch while it is filled: the inputs of a model as typed slices, by name.

use super::Part;
use crate::error::{Error, Result};
use crate::exec::{as_floats_mut, as_integers_mut};
use crate::graph::{DType, Graph, Init, Source, Type};

/// The inputs of one batch, in the memory where the step will read them.
///
/// Everything that a batch may depend on is here: its number, which part of the data it belongs to, and the seed of the
/// run. The same three give the same batch, so a resumed run sees what an uninterrupted one would have seen.
#[derive(Debug)]
pub struct Batch<'a> {
    number: u64,
    part: Part,
    seed: u64,
    inputs: Vec<BatchInput<'a>>,
}

/// One input of a batch.
#[derive(Debug)]
pub struct BatchInput<'a> {
    pub(crate) source: &'a Source,
    ty: &'a Type,
    bytes: &'a mut [u8],
}

impl<'a> Batch<'a> {
    /// A batch in the memory of an engine: what its [`batch_mut`](crate::exec::Engine::batch_mut) gives.
    pub fn new(
        number: u64,
        part: Part,
        seed: u64,
        (graph, inputs): (&'a Graph, Vec<(&'a Source, &'a mut [u8])>),
    ) -> Batch<'a> {
        let input = |(source, bytes): (&'a Source, &'a mut [u8])| BatchInput {
            source,
            ty: &graph.values[source.value].ty,
            bytes,
        };
        Batch { number, part, seed, inputs: inputs.into_iter().map(input).collect() }
    }

    /// Its number, from 1 through the whole run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Which part of the data it belongs to.
    pub fn part(&self) -> Part {
        self.part
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The inputs, in the order in which the model declares them.
    pub fn inputs(&mut self) -> &mut [BatchInput<'a>] {
        &mut self.inputs
    }

    /// The shape of an input.
    pub fn shape(&self, name: &str) -> Result<&'a [usize]> {
        self.inputs.iter().find(|i| i.name() == name).map(|i| i.ty.shape()).ok_or_else(|| self.missing(name))
    }

    /// The elements of a float input.
    pub fn floats(&mut self, name: &str) -> Result<&mut [f32]> {
        self.input(name)?.floats()
    }

    /// The elements of an input of labels or token ids.
    pub fn integers(&mut self, name: &str) -> Result<&mut [i32]> {
        self.input(name)?.integers()
    }

    fn input(&mut self, name: &str) -> Result<&mut BatchInput<'a>> {
        match self.inputs.iter().position(|input| input.name() == name) {
            Some(found) => Ok(&mut self.inputs[found]),
            None => Err(self.missing(name)),
        }
    }

    fn missing(&self, name: &str) -> Error {
        let known: Vec<&str> = self.inputs.iter().map(BatchInput::name).collect();
        let message = format!("the model has no input of this name; it has {}", known.join(", "));
        Error::TrainingData { place: format!("input `{name}`"), message }
    }

    /// Refuses indices that an op would read out of range. Negative labels mean "ignore" and are allowed.
    pub(crate) fn check(&self) -> Result<()> {
        self.inputs.iter().try_for_each(|input| check_indices(input.source, input.bytes))
    }
}

impl BatchInput<'_> {
    /// As the model declares it.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        self.ty.shape()
    }

    /// The number of classes or tokens, for labels and token ids.
    pub fn limit(&self) -> Option<usize> {
        match self.source.init {
            Init::Indices(limit) | Init::Labels(limit) => Some(limit),
            _ => None,
        }
    }

    /// Its elements, if they are floats.
    pub fn floats(&mut self) -> Result<&mut [f32]> {
        self.expect(DType::F32, "floats; fill it through `integers`")?;
        Ok(as_floats_mut(self.bytes))
    }

    /// Its elements, if they are labels or token ids.
    pub fn integers(&mut self) -> Result<&mut [i32]> {
        self.expect(DType::I32, "integers; fill it through `floats`")?;
        Ok(as_integers_mut(self.bytes))
    }

    /// Sets every element to zero.
    pub(crate) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    fn expect(&self, wanted: DType, what: &str) -> Result<()> {
        if self.ty.dtype() == wanted {
            return Ok(());
        }
        let message = format!("is {} and does not hold {what}", self.ty);
        Err(Error::TrainingData { place: format!("input `{}`", self.name()), message })
    }
}

/// Refuses indices of one input that an op would read out of range.
pub(crate) fn check_indices(source: &Source, bytes: &[u8]) -> Result<()> {
    let (limit, may_be_negative) = match source.init {
        Init::Indices(limit) => (limit, false),
        Init::Labels(limit) => (limit, true),
        _ => return Ok(()),
    };
    for (index, element) in bytes.chunks_exact(4).enumerate() {
        let value = i32::from_ne_bytes([element[0], element[1], element[2], element[3]]);
        if usize::try_from(value).map_or(!may_be_negative, |v| v >= limit) {
            return Err(Error::Data { what: source.name.clone(), index, value: value.into(), limit });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::exec::{Engine as _, Reference};
    use crate::graph::Builder;
    use crate::train::Batches;

    /// Fills one batch of the inputs that `declare` makes, and returns their engine.
    fn filled(
        batches: &mut dyn Batches,
        number: u64,
        declare: impl FnOnce(&mut Builder),
    ) -> Result<Reference> {
        let mut b = Builder::new("inputs");
        declare(&mut b);
        let mut engine = Reference::new(b.finish(), 1)?;
        batches.fill(&mut Batch::new(number, Part::Training, 1, engine.batch_mut()))?;
        Ok(engine)
    }

    fn integers(engine: &Reference, name: &str) -> Vec<i32> {
        let source = engine.graph().sources.iter().find(|s| s.name == name).expect("it was declared");
        let bytes = engine.bytes(source.value).chunks_exact(4);
        bytes.map(|b| i32::from_ne_bytes(b.try_into().expect("four bytes"))).collect()
    }

    /// `input` and `labels` of a batch of images.
    pub(in super::super) fn fill_pair(
        batches: &mut dyn Batches,
        number: u64,
        input: &[usize],
        labels: &[usize],
    ) -> Result<(Vec<f32>, Vec<i32>)> {
        let engine = filled(batches, number, |b| {
            b.input("input", input).expect("small");
            b.labels("labels", labels, 1000).expect("small");
        })?;
        Ok((engine.floats(engine.graph().sources[0].value).to_vec(), integers(&engine, "labels")))
    }

    /// `input` or `labels` of a batch of tokens.
    pub(in super::super) fn fill_tokens(
        batches: &mut dyn Batches,
        number: u64,
        shape: &[usize],
        name: &str,
    ) -> Vec<i32> {
        let engine = filled(batches, number, |b| {
            b.indices("input", shape, 1000).expect("small");
            b.labels("labels", shape, 1000).expect("small");
        });
        integers(&engine.expect("a batch"), name)
    }

    #[test]
    fn inputs_are_found_by_name_and_type_and_indices_are_checked() {
        let mut b = Builder::new("inputs");
        b.input("x", &[2, 3]).expect("small");
        b.indices("tokens", &[2], 5).expect("small");
        b.labels("labels", &[2], 5).expect("small");
        let mut engine = Reference::new(b.finish(), 1).expect("small");
        let mut batch = Batch::new(7, Part::HeldOut, 3, engine.batch_mut());
        assert_eq!((batch.number(), batch.part(), batch.seed()), (7, Part::HeldOut, 3));
        assert_eq!(batch.shape("x").expect("an input"), [2, 3]);
        batch.floats("x").expect("floats").fill(1.5);
        batch.integers("labels").expect("integers").fill(-1);
        batch.check().expect("a negative label means: ignore");
        let message = batch.floats("y").unwrap_err().to_string();
        assert_eq!(message, "input `y`: the model has no input of this name; it has x, tokens, labels");
        let message = batch.floats("tokens").unwrap_err().to_string();
        assert!(message.contains("i32[2]") && message.contains("`integers`"), "{message}");
        for wrong in [5, -1] {
            batch.integers("tokens").expect("integers")[1] = wrong;
            let message = batch.check().unwrap_err().to_string();
            assert_eq!(message, format!("tokens: element 1 is {wrong}, outside 0..5"));
        }
    }
}
