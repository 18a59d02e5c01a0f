//! Networks built from handles: the graphs they make, the shapes of every layer, and where mistakes are reported.

mod layers;
mod mistakes;
mod own_op;
mod roles;
mod text;
