//! Parses the user's input: commands that start with `/`, and messages.

use super::settings;

/// An input line of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputLine {
    Message(String),
    /// A blank line.
    Blank,
    Command(Command),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    /// Restarts the conversation with this system message, or without one if empty.
    System(String),
    Reset,
    Undo,
    Retry,
    Set(String),
    Show,
    Stats,
    Save(String),
    Quit,
}

/// Name, argument and description of each command.
const ALL: [(&str, &str, &str); 10] = [
    ("/help", "", "list the commands"),
    (
        "/system",
        "TEXT",
        "restart with TEXT as the system message; without TEXT, with none",
    ),
    ("/reset", "", "restart the conversation"),
    ("/undo", "", "remove the last message and its answer"),
    ("/retry", "", "answer the last message again"),
    ("/set", "NAME VALUE", "change a sampling setting"),
    ("/show", "", "show the settings and the used context"),
    (
        "/stats",
        "",
        "show the speed of prompts and answers, the used context and the memory",
    ),
    (
        "/save",
        "FILE",
        "write the conversation as a line of JSON, as `emberlm prepare --chat-template` reads it",
    ),
    ("/quit", "", "end, as Ctrl-D does"),
];

impl InputLine {
    /// Parses an input line. A message that starts with `/` must be written with `//`.
    ///
    /// # Errors
    /// Returns an error if the command does not exist or its argument is missing or unexpected. The message
    /// lists the commands.
    pub fn read(text: &str) -> Result<Self, String> {
        let Some(rest) = text.trim_start().strip_prefix('/') else {
            return Ok(match text.trim() {
                "" => Self::Blank,
                _ => Self::Message(text.to_owned()),
            });
        };
        if rest.starts_with('/') {
            return Ok(Self::Message(rest.to_owned()));
        }
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let argument = argument.trim();
        let needed = |what: &str| match argument {
            "" => Err(format!("/{name} needs {what} after it")),
            argument => Ok(argument.to_owned()),
        };
        let command = match name {
            "system" => Command::System(argument.to_owned()),
            "set" => Command::Set(argument.to_owned()),
            "save" => Command::Save(needed("a file's name")?),
            _ if !argument.is_empty() && names().any(|known| known == format!("/{name}")) => {
                return Err(format!("/{name} takes nothing after it"));
            }
            "help" => Command::Help,
            "reset" => Command::Reset,
            "undo" => Command::Undo,
            "retry" => Command::Retry,
            "show" => Command::Show,
            "stats" => Command::Stats,
            "quit" | "exit" => Command::Quit,
            _ => {
                let all: Vec<&str> = names().collect();
                return Err(format!(
                    "there is no /{name}, but {}; // sends a message that begins with /",
                    all.join(", ")
                ));
            }
        };
        Ok(Self::Command(command))
    }
}

/// The commands' names, including the slash.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(name, ..)| name)
}

/// The help text that lists the commands.
pub fn help() -> String {
    let usages = ALL.map(|(name, argument, what)| (format!("{name} {argument}"), what));
    let width = usages.iter().map(|(usage, _)| usage.len()).max();
    let mut text = String::new();
    for (usage, what) in usages {
        text += &format!("  {usage:<width$}  {what}\n", width = width.unwrap_or(0));
        if usage.starts_with("/set ") {
            let names = settings::names().collect::<Vec<_>>().join(", ");
            text += &format!("  {:<width$}  {names}\n", "", width = width.unwrap_or(0));
        }
    }
    text + "\n  A line that ends with \\ continues in the next one; pasted text is one message.\n  \
        Ctrl-C ends an answer, and clears a line; Ctrl-D ends the conversation.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_messages_and_blank_lines_are_distinguished() {
        let read = |text: &str| InputLine::read(text).unwrap();
        assert_eq!(read(" \n"), InputLine::Blank);
        assert_eq!(read(" a /b\n"), InputLine::Message(" a /b\n".to_owned()));
        assert_eq!(read("//etc"), InputLine::Message("/etc".to_owned()));
        assert_eq!(read(" /help "), InputLine::Command(Command::Help));
        assert_eq!(
            read("/system Be\nbrief. "),
            InputLine::Command(Command::System("Be\nbrief.".to_owned()))
        );
        assert_eq!(
            read("/save my file"),
            InputLine::Command(Command::Save("my file".to_owned()))
        );
    }

    #[test]
    fn every_name_is_a_command() {
        for name in names() {
            // Some commands require an argument and some reject one.
            let known = [name.to_owned(), format!("{name} x")].map(|text| InputLine::read(&text));
            let known = known
                .iter()
                .any(|line| matches!(line, Ok(InputLine::Command(_))));
            assert!(known, "{name}");
        }
    }

    #[test]
    fn invalid_commands_are_reported() {
        let refused = |text: &str| InputLine::read(text).unwrap_err();
        assert_eq!(refused("/save"), "/save needs a file's name after it");
        assert_eq!(refused("/reset now"), "/reset takes nothing after it");
        let message = refused("/usr/bin is a folder");
        assert!(
            message.starts_with("there is no /usr/bin, but /help, /system, "),
            "{message}"
        );
    }
}
