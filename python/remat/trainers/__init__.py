"""One line for each trainer: transformers and TRL, Lightning, accelerate. Each module imports its library, this one none."""
