//! Whole datasets: adopted, exported, verified, inspected, damaged; with files that numpy and Python's struct wrote
//! (`fixtures/datasets/make.py`).

mod adopt;
mod blocks;
mod damage;
mod export;
mod inspect;
mod place;
mod verify;
