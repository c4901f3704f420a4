//! A host whose settings are changed, and a transaction on it that is killed.

use std::path::Path;

use linerate_bench_shared::Trouble;

use crate::Death;
use crate::kinds::Kind;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Whether it finished by itself, and reported that it was done.
    pub(crate) done: bool,
    /// Whether it was killed.
    pub(crate) killed: bool,
    /// Its output.
    pub(crate) said: String,
}

/// A host of one kind, and the operations on it.
pub(crate) trait Host {
    /// The settings that are changed on it.
    fn kinds(&self) -> &'static [Kind];

    /// Prints them, and what writing them may disturb, with other programs.
    fn look_script(&self) -> &'static str;

    /// linerate's file and its state folder.
    fn linerate(&self) -> (&Path, &Path);

    /// Runs a script of sh, until all its processes have ended.
    fn shell(&mut self, script: &str) -> Result<Ended, Trouble>;

    /// Who is killed on it.
    fn deaths(&self) -> &'static [Death];
}

/// A shell's word.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl dyn Host + '_ {
    /// Everything that could be changed, as other tools see it.
    pub(crate) fn look(&mut self) -> Result<String, Trouble> {
        let script = format!("{{ {}\n}} 2>/dev/null; true", self.look_script());
        Ok(self.shell(&script)?.said)
    }

    /// A plan file for these settings.
    pub(crate) fn plan(&mut self, kinds: &[Kind]) -> Result<String, Trouble> {
        let features = self.look()?;
        let gro = features.contains("generic-receive-offload: on");
        let other = if gro { "false" } else { "true" };
        let lines = kinds
            .iter()
            .map(|kind| format!("\"{}\" = {}\n", kind.key, kind.to.replace("OTHER", other)));
        let text = format!("[settings]\n{}", lines.collect::<String>());
        let file = self.linerate().1.join("plan.toml").display().to_string();
        let script = format!("printf %s {} >{}", quoted(&text), quoted(&file));
        match self.shell(&script)? {
            Ended { done: true, .. } => Ok(file),
            Ended { said, .. } => Err(Trouble(format!("write a plan: {said}"))),
        }
    }

    /// The output of linerate; `environment` selects who dies where, and what is omitted.
    pub(crate) fn run(
        &mut self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Ended, Trouble> {
        let (linerate, state) = self.linerate();
        let variables = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let command = [
            linerate.display().to_string(),
            "--state".to_owned(),
            state.display().to_string(),
        ];
        let words = variables
            .chain(command)
            .chain(arguments.iter().map(|&argument| argument.to_owned()));
        let words: Vec<String> = words.map(|word| quoted(&word)).collect();
        let script = format!("exec env LINERATE_MARK_SYNCED=1 {}", words.join(" "));
        self.shell(&script)
    }

    /// How many steps a transaction has until it is committed; it is rolled back.
    pub(crate) fn steps(&mut self, apply: &[&str]) -> Result<u32, Trouble> {
        let file = self.linerate().1.join("steps").display().to_string();
        self.must(apply, &[("LINERATE_COUNT_STEPS", &format!("maker:{file}"))])?;
        let counted = self.shell(&format!("cat {}", quoted(&file)))?.said;
        self.must(&["tune", "undo"], &[])?;
        let steps = counted.parse();
        steps.map_err(|_| Trouble(format!("count the steps: {counted}")))
    }

    /// Runs what must not fail.
    pub(crate) fn must(
        &mut self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(), Trouble> {
        let ended = self.run(arguments, environment)?;
        if ended.done {
            return Ok(());
        }
        let words = arguments.join(" ");
        Err(Trouble(format!("run `linerate {words}`: {}", ended.said)))
    }
}
