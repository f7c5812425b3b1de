//! Whole datasets: adopted, exported, verified, inspected, damaged; with files that numpy and Python's struct wrote
//! (`fixtures/datasets/make.py`).

#![allow(clippy::unwrap_used)] // A test that unwraps fails, as it should.

mod adopt;
mod blocks;
mod damage;
mod export;
mod inspect;
mod place;
mod verify;
