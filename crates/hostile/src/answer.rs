//! The check of an answer to a hostile request.

use serde_json::Value;

use super::Operation;

/// Statuses with which a server may reject a request before it reads its method and path, without a body.
const UNREADABLE: [u16; 3] = [400, 414, 431];

/// A permitted answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A status below 400.
    Answered,
    /// A described error with a reason.
    Rejected,
}

impl Operation {
    /// Checks the answer to a hostile request. Returns the reason if it is not permitted: its status is 500 or not described,
    /// or an error has no reason.
    pub fn check(&self, status: u16, body: &str) -> Result<Outcome, String> {
        let start: String = body.chars().take(200).collect();
        if status == 500 || !self.statuses.contains(&status) {
            return Err(format!("{status} {start}"));
        }
        // A stream can fail after its status.
        if ["\"server_error\"", "\"api_error\""]
            .iter()
            .any(|kind| body.contains(kind))
        {
            let all: String = body.chars().rev().take(300).collect();
            return Err(format!(
                "the stream ends with: {}",
                all.chars().rev().collect::<String>()
            ));
        }
        match status {
            ..400 => Ok(Outcome::Answered),
            _ if has_reason(body) => Ok(Outcome::Rejected),
            _ => Err(format!("{status} without a reason: {start}")),
        }
    }

    /// As [`Operation::check`], for a request with a hostile target: it may be that of no operation, or no target at all.
    pub fn check_target(&self, status: u16, body: &str) -> Result<Outcome, String> {
        let is_unreadable = UNREADABLE.contains(&status) && body.is_empty();
        match is_unreadable || (status == 404 && has_reason(body)) {
            true => Ok(Outcome::Rejected),
            false => self.check(status, body),
        }
    }
}

/// Returns true if the text is an error object with a message.
pub fn has_reason(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let error = &value["error"];
    // Ollama's errors are texts.
    let message = error["message"].as_str().or(error.as_str());
    message.is_some_and(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_needs_a_reason() {
        assert!(has_reason(r#"{"error":{"message":"no"}}"#));
        assert!(has_reason(r#"{"error":"no"}"#));
        for text in [
            "",
            "no",
            r#"{"error":{"message":""}}"#,
            r#"{"error":""}"#,
            r#"{"message":"no"}"#,
        ] {
            assert!(!has_reason(text), "{text}");
        }
    }

    #[test]
    fn only_described_answers_are_permitted() {
        let operation = Operation {
            method: "POST".to_owned(),
            path: "/a".to_owned(),
            fields: Vec::new(),
            statuses: [200, 400, 500].into(),
            queries: Vec::new(),
        };
        let error = r#"{"error":{"message":"no","type":"invalid_request_error"}}"#;
        assert_eq!(operation.check(200, "{}"), Ok(Outcome::Answered));
        assert_eq!(operation.check(400, error), Ok(Outcome::Rejected));
        let failed = "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\"}}\n\n";
        for (status, body) in [(400, "no"), (500, error), (503, error), (200, failed)] {
            assert!(operation.check(status, body).is_err(), "{status} {body}");
        }
        assert_eq!(operation.check_target(431, ""), Ok(Outcome::Rejected));
        assert_eq!(operation.check_target(404, error), Ok(Outcome::Rejected));
        assert!(operation.check_target(500, error).is_err());
        assert!(operation.check_target(404, "").is_err());
    }
}
