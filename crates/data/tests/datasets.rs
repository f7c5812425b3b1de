//! Operations on whole datasets: adoption, export, verification, inspection and damage. The fixtures were written by
//! NumPy and Python's `struct` (`fixtures/datasets/make.py`).

mod adopt;
mod blocks;
mod common;
mod damage;
mod export;
mod inspect;
mod verify;
