//! Groups of tasks: the list `task` of a file, whose members may have settings, as `TaskFactory` builds them.
//!
//! A key of a group other than its own ones is a setting of its tasks. Of several settings of a key, that of the member
//! counts, then that of the outer group, that of the group, and that of the task's file.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::aggregate::{Aggregate, TaskGroup, aggregates};
use super::keys::{Keys, Settings, check_names};
use super::metrics::MetricKind;
use super::registry::{Named, NamedFile, Registry, is_group};
use crate::evaluate::tasks::TaskError;

/// Most groups within each other.
const MAX_DEPTH: usize = 16;
/// Keys of a group that are no settings of its tasks.
const GROUP_KEYS: [&str; 6] = [
    "aggregate_metric_list",
    "group",
    "group_alias",
    "metadata",
    "tag",
    "task",
];

/// A group with its members.
pub(in crate::evaluate::tasks) struct GroupFile {
    pub(in crate::evaluate::tasks) name: String,
    pub(in crate::evaluate::tasks) members: Vec<Member>,
    aggregates: Vec<Aggregate>,
    keys: Keys,
}

/// A task or a group.
pub(in crate::evaluate::tasks) enum Member {
    Task(Keys),
    Group(GroupFile),
}

impl Member {
    /// Reads the file of a task or of a group with its members.
    ///
    /// # Errors
    /// A key or a value of a group is not supported, or a member is no name of a task, group or tag in the files of the
    /// same folder and no inline task, or is in the group twice.
    pub(in crate::evaluate::tasks) fn read(path: &Path) -> Result<Self, TaskError> {
        let keys = Keys::read(path, 0)?;
        if !is_group(&keys)? {
            return Ok(Self::Task(keys));
        }
        let name: String = keys.read_value("group", &keys.required("group")?)?;
        let mut reader = Reader {
            registry: &Registry::beside(path)?,
            seen: BTreeSet::from([name.clone()]),
        };
        let group = reader.group(name, keys, &Settings::new(), 1)?;
        Ok(Self::Group(group))
    }
}

impl GroupFile {
    /// The group of the tasks at the places `members`, which have the metrics `found` with these filters.
    ///
    /// # Errors
    /// None of them has a metric of the group.
    pub(in crate::evaluate::tasks) fn group(
        self,
        members: Vec<usize>,
        found: &[(MetricKind, &str)],
    ) -> Result<TaskGroup, TaskError> {
        TaskGroup::new(self.name, self.aggregates, &self.keys, members, found)
    }

    /// The error for the name of the group.
    pub(in crate::evaluate::tasks) fn refuse_name(&self, reason: String) -> TaskError {
        self.keys.refuse("group", reason)
    }
}

/// Reads groups whose members are in the files of one folder.
struct Reader<'a> {
    registry: &'a Registry,
    /// The names of the tasks and groups so far.
    seen: BTreeSet<String>,
}

impl Reader<'_> {
    /// Reads a group. `outer` are settings that replace its own.
    fn group(
        &mut self,
        name: String,
        keys: Keys,
        outer: &Settings,
        depth: usize,
    ) -> Result<GroupFile, TaskError> {
        if depth > MAX_DEPTH {
            let reason = format!("more than {MAX_DEPTH} groups within each other");
            return Err(keys.refuse("task", reason));
        }
        let mut settings = keys.clone().without(&GROUP_KEYS);
        check_names(&settings)?;
        settings.extend(outer.clone());
        let mut members = Vec::new();
        for member in keys.take::<Vec<Value>>("task")?.unwrap_or_default() {
            match member {
                Value::String(member) => {
                    members.extend(self.named(&keys, &member, &settings, depth)?)
                }
                Value::Object(fields) if fields.contains_key("group") => {
                    members.push(self.inner_group(&name, &keys, fields, &settings, depth)?);
                }
                Value::Object(fields) if fields.contains_key("task") => {
                    let task = self.task(&name, &keys, fields, &settings)?;
                    members.push(Member::Task(task));
                }
                other => {
                    let reason = format!(
                        "a member must be a name, or a mapping with `task` or `group` (got {other})"
                    );
                    return Err(keys.refuse("task", reason));
                }
            }
        }
        Ok(GroupFile {
            name,
            members,
            aggregates: aggregates(&keys)?,
            keys,
        })
    }

    /// The members that a name without settings stands for.
    fn named(
        &mut self,
        keys: &Keys,
        name: &str,
        settings: &Settings,
        depth: usize,
    ) -> Result<Vec<Member>, TaskError> {
        let refuse = |reason: String| keys.refuse("task", reason);
        let registry = self.registry;
        let mut task = |file: &NamedFile| {
            self.see(keys, &file.name)?;
            Ok(Member::Task(file.keys.clone().overlaid(settings)))
        };
        match registry.find(name).map_err(refuse)? {
            Some(Named::Task(file)) => Ok(vec![task(file)?]),
            Some(Named::Tag(files)) => files.into_iter().map(task).collect(),
            Some(Named::Group(file)) => {
                self.see(keys, name)?;
                let group = self.group(name.to_owned(), file.keys.clone(), settings, depth + 1)?;
                Ok(vec![Member::Group(group)])
            }
            None => Err(refuse(format!(
                "no file in its folder has a task, a group or a tag named {name}"
            ))),
        }
    }

    /// The member that a mapping with `group` describes: a group of a file with settings, or an inline one. As in the harness,
    /// it may also be a task of a file.
    fn inner_group(
        &mut self,
        outer: &str,
        keys: &Keys,
        fields: Map<String, Value>,
        settings: &Settings,
        depth: usize,
    ) -> Result<Member, TaskError> {
        let refuse = |reason: String| keys.refuse("task", reason);
        let name = member_name(keys, "group", &fields)?;
        match self.registry.find(&name).map_err(refuse)? {
            Some(Named::Group(file) | Named::Task(file)) => {
                let fixed = ["aggregate_metric_list", "group_alias", "task"];
                if let Some(key) = fixed.into_iter().find(|key| fields.contains_key(*key)) {
                    return Err(refuse(format!(
                        "the member {name}: `{key}` is not supported beside `group`, since a file has this name"
                    )));
                }
                self.see(keys, &name)?;
                let own = keys.member(&name, fields).without(&["group"]);
                if !file.is_group {
                    let task = file.keys.clone().overlaid(settings).overlaid(&own);
                    return Ok(Member::Task(task));
                }
                check_names(&own)?;
                let mut settings = settings.clone();
                settings.extend(own);
                let group = self.group(name, file.keys.clone(), &settings, depth + 1)?;
                Ok(Member::Group(group))
            }
            Some(Named::Tag(_)) => Err(refuse(format!(
                "the member {name}: `group` must be a group (got a tag): name a tag without settings"
            ))),
            None if fields.contains_key("task") => {
                let name = format!("{outer}::{name}");
                self.see(keys, &name)?;
                let inner = keys.member(&name, fields);
                let group = self.group(name, inner, settings, depth + 1)?;
                Ok(Member::Group(group))
            }
            None => Err(refuse(format!(
                "no file in its folder has a group named {name}, and without `task` the member has no tasks"
            ))),
        }
    }

    /// A task that a mapping describes: one of a file with settings, or an inline one.
    fn task(
        &mut self,
        group: &str,
        keys: &Keys,
        fields: Map<String, Value>,
        settings: &Settings,
    ) -> Result<Keys, TaskError> {
        let refuse = |reason: String| keys.refuse("task", reason);
        let name = member_name(keys, "task", &fields)?;
        match self.registry.find(&name).map_err(refuse)? {
            Some(Named::Task(file)) => {
                self.see(keys, &name)?;
                let own = keys.member(&name, fields).without(&["task"]);
                Ok(file.keys.clone().overlaid(settings).overlaid(&own))
            }
            Some(_) => Err(refuse(format!(
                "the member {name}: `task` must be a task (got a group or a tag): name a group by `group`, and a tag without settings"
            ))),
            None => {
                let has_data = |settings: &Settings| settings.contains_key("dataset_path");
                if !has_data(settings) && !fields.contains_key("dataset_path") {
                    return Err(refuse(format!(
                        "no file in its folder has a task named {name}, and without `dataset_path` the member is no inline task"
                    )));
                }
                let name = format!("{group}::{name}");
                self.see(keys, &name)?;
                let own = keys.member(&name, fields).with_defaults(settings);
                Ok(own.renamed(&name))
            }
        }
    }

    /// Rejects a second task or group of a name.
    fn see(&mut self, keys: &Keys, name: &str) -> Result<(), TaskError> {
        match self.seen.insert(name.to_owned()) {
            true => Ok(()),
            false => Err(keys.refuse("task", format!("{name} is in the group twice"))),
        }
    }
}

/// The name that a mapping in the list `task` has by `key`.
fn member_name(keys: &Keys, key: &str, fields: &Map<String, Value>) -> Result<String, TaskError> {
    let name = fields.get(key).unwrap_or(&Value::Null);
    let text = name.as_str().map(str::to_owned);
    text.ok_or_else(|| {
        keys.refuse(
            "task",
            format!("`{key}` of a member must be a name (got {name})"),
        )
    })
}
