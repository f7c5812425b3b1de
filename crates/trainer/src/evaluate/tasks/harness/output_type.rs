//! The requests that a task makes: `output_type`.

emberlm_system::named! {
    /// The requests that a task makes.
    pub enum OutputType {
        /// The likelihood of each choice.
        MultipleChoice = "multiple_choice",
        /// A greedy answer, up to a stop string.
        GenerateUntil = "generate_until",
        /// The likelihood of the target.
        Loglikelihood = "loglikelihood",
        /// The likelihood of a whole text.
        LoglikelihoodRolling = "loglikelihood_rolling",
    }
}
