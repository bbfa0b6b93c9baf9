//! Joins over a store in memory.

mod memory;
mod nested_loop;
mod rows;
