//! An agent of the guest that outlives its controllers: an agent serves one and ends with it, so this one has a talk that
//! does not end. What a trial leaves behind when it fails stays with it, to be found.

use crate::guest::Guest;

/// Where the agent and its relay are.
const FOLDER: &str = "/run/agent";

/// A relay between a controller and the agent: the answer to the first greeting serves all of them, and no goodbye is
/// forwarded.
const RELAY: &str = r#"
while IFS= read -r line; do
    case $line in
        '{"hello"'*)
            if ! [ -e greeting ]; then
                printf '%s\n' "$line" >in
                IFS= read -r answer <out
                printf '%s\n' "$answer" >greeting
            fi
            cat greeting
            cat out & replies=$! ;;
        '"bye"') break ;;
        *) printf '%s\n' "$line" >in ;;
    esac
done
kill $replies
"#;

/// The agent that a controller reaches as [`LastingAgent::PEER`].
pub(crate) struct LastingAgent<'g>(&'g Guest);

impl<'g> LastingAgent<'g> {
    /// The peer, as a word of a shell's command.
    pub(crate) const PEER: &'static str = "'exec:cd /run/agent; exec bash relay'";

    pub(crate) fn start(guest: &'g Guest) -> Self {
        guest.shell(&format!(
            "rm -rf {FOLDER}; mkdir {FOLDER}; cd {FOLDER}; mkfifo -m 666 in out
            cat >relay <<'END'{RELAY}END
            {} agent --stdio <>in 1<>out 2>errors & echo $! >pid",
            Guest::command()
        ));
        Self(guest)
    }

    /// It is the one that was started.
    #[track_caller]
    pub(crate) fn assert_alive(&self) {
        (self.0).shell(&format!("readlink -e /proc/$(cat {FOLDER}/pid)/exe"));
    }

    /// Ends it, and waits until it is gone.
    #[track_caller]
    pub(crate) fn end(self) {
        self.assert_alive();
        (self.0).shell(&format!(
            "pid=$(cat {FOLDER}/pid); kill $pid
            while readlink -e /proc/$pid/exe >/run/none; do :; done
            rm -r {FOLDER}"
        ));
    }
}
