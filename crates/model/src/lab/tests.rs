//! Experiments without a host: validation, and the options of a combination of levels.

use super::*;

fn factor(option: &str, levels: &[&str]) -> Factor {
    Factor {
        option: Some(option.to_owned()),
        levels: levels
            .iter()
            .map(|level| Level::Value(Word::Text((*level).to_owned())))
            .collect(),
        ..Factor::default()
    }
}

fn experiment(factors: Vec<Factor>) -> Experiment {
    Experiment {
        schema: None,
        title: "near and far".to_owned(),
        question: String::new(),
        device: None,
        workload: "stream".to_owned(),
        response: Responses::default(),
        options: Words::new(),
        settings: Words::new(),
        peer: OfPeer::default(),
        optional: Vec::new(),
        beside: Vec::new(),
        factors,
        design: Design::default(),
        difference: None,
        quick: Quick::default(),
        published: Vec::new(),
        server: None,
    }
}

#[test]
fn without_a_question_every_factor_and_every_two_are_asked_for() {
    let three = experiment(vec![
        factor("place", &["near", "far"]),
        factor("flows", &["1", "4"]),
        factor("cc", &["cubic", "bbr"]),
    ]);
    assert_eq!(three.check(), Ok(()));
    let asked = three.asked();
    let names: Vec<String> = asked.iter().map(|one| three.effect_name(one)).collect();
    assert_eq!(
        names,
        [
            "place",
            "flows",
            "cc",
            "place*flows",
            "place*cc",
            "flows*cc"
        ]
    );
}

#[test]
fn what_two_factors_vary_belongs_to_neither() {
    let error = experiment(vec![
        factor("flows", &["1", "4"]),
        Factor {
            name: Some("load".to_owned()),
            ..factor("flows", &["2", "8"])
        },
    ])
    .check()
    .expect_err("both vary the flows");
    assert_eq!(
        error.to_string(),
        "load: option `flows` is varied by `flows` too"
    );
}

#[test]
fn a_factor_that_is_asked_for_must_be_one() {
    let mut two = experiment(vec![factor("flows", &["1", "4"])]);
    two.design.ask = vec!["flows*place".to_owned()];
    let error = two.check().expect_err("there is no place");
    assert_eq!(
        error.to_string(),
        "flows*place: no factor `place`; factors: flows"
    );
}

#[test]
fn a_step_makes_the_changes_of_those_before_it_and_its_own_count() {
    let level = |name: &str, option: &str, value: i64| {
        Level::Table(LevelTable {
            name: name.to_owned(),
            options: Words::from([(option.to_owned(), Word::Integer(value))]),
            ..LevelTable::default()
        })
    };
    let factor = Factor {
        name: Some("step".to_owned()),
        levels: vec![
            level("one", "flows", 1),
            level("two", "mss", 2),
            level("three", "flows", 3),
        ],
        steps: true,
        ..Factor::default()
    };
    let options = |place| factor.level(place).expect("a level").options;
    assert_eq!(options(0).len(), 1);
    assert_eq!(options(1)["flows"], Word::Integer(1));
    assert_eq!(options(2)["flows"], Word::Integer(3));
    assert_eq!(options(2)["mss"], Word::Integer(2));
    assert_eq!(factor.level_names(), ["one", "two", "three"]);
}

#[test]
fn a_level_goes_before_what_is_for_every_trial() {
    let mut one = experiment(vec![factor("flows", &["1", "4"])]);
    one.options.insert("flows".to_owned(), Word::Integer(9));
    one.options.insert("time".to_owned(), Word::Integer(2));
    let at = one.at(&[1]);
    assert_eq!(at.options["flows"], Word::Text("4".to_owned()));
    assert_eq!(at.options["time"], Word::Integer(2));
    assert_eq!(at.workload.as_deref(), Some("stream"));
}

#[test]
fn the_peer_of_a_setting_is_also_named_remote() {
    let on = |word: &str| serde_json::from_str::<On>(&format!("\"{word}\"")).ok();
    assert_eq!(on("remote"), on("peer"));
    assert_eq!((on("peer"), on("far")), (Some(On::Peer), None));
}

#[test]
fn a_setting_on_both_hosts_is_one_of_each() {
    let both = Factor {
        option: None,
        setting: Some("nic/@/mtu".to_owned()),
        ..factor("", &["1500", "9000"])
    };
    let level = both.level(1).expect("two levels");
    assert_eq!(level.settings, level.peer.settings);
    let peer = Factor {
        on: Some(On::Peer),
        ..both
    };
    let level = peer.level(1).expect("two levels");
    assert!(level.settings.is_empty() && level.peer.settings.len() == 1);
}

#[test]
fn the_quick_form_has_fewer_levels() {
    let mut one = experiment(vec![factor("flows", &["1", "2", "4"])]);
    one.factors[0].quick = Some(vec![0, 2]);
    one.quick.repeats = Some(2);
    assert!(one.check().is_err(), "two can agree by chance");
    one.quick.repeats = Some(3);
    let quick = one.quick();
    assert_eq!(quick.check(), Ok(()));
    assert_eq!(quick.level_names(&[1]), ["4"]);
    assert_eq!(quick.design.repeats, 3);
}

fn table(level: LevelTable) -> Level {
    Level::Table(level)
}

fn with_runs(names: &[(&str, Option<&str>)]) -> Factor {
    let level = |(name, run): &(&str, Option<&str>)| {
        table(LevelTable {
            name: (*name).to_owned(),
            run: run.map(str::to_owned),
            ..LevelTable::default()
        })
    };
    Factor {
        name: Some("day".to_owned()),
        option: None,
        levels: names.iter().map(level).collect(),
        ..factor("", &[])
    }
}

#[test]
fn of_a_factor_with_earlier_runs_something_is_measured_and_only_one_has_them() {
    let flows = || factor("flows", &["1", "4"]);
    let day = with_runs(&[("then", Some("old")), ("now", None)]);
    let sound = experiment(vec![flows(), day.clone()]);
    assert_eq!(sound.check(), Ok(()));
    assert_eq!(sound.factor_of_runs(), Some(1));
    assert_eq!(sound.at(&[0, 0]).run.as_deref(), Some("old"));
    let all = with_runs(&[("then", Some("old")), ("later", Some("new"))]);
    let error = experiment(vec![flows(), all]).check().expect_err("nothing");
    assert!(error.why.contains("nothing would be measured"), "{error}");
    let week = Factor {
        name: Some("week".to_owned()),
        ..day.clone()
    };
    let error = experiment(vec![day, week]).check().expect_err("two");
    assert!(error.why.contains("one factor may"), "{error}");
}

#[test]
fn another_host_stands_in_the_combinations_of_its_level_alone() {
    let host = Factor {
        name: Some("host".to_owned()),
        option: None,
        levels: vec![
            table(LevelTable {
                name: "b".to_owned(),
                ..LevelTable::default()
            }),
            table(LevelTable {
                name: "c".to_owned(),
                peer: OfPeer {
                    at: Some("ssh://c".to_owned()),
                    settings: Words::new(),
                },
                ..LevelTable::default()
            }),
        ],
        ..factor("", &[])
    };
    let mut two = experiment(vec![host.clone(), factor("flows", &["1", "4"])]);
    two.peer.at = Some("ssh://b".to_owned());
    assert_eq!(two.check(), Ok(()));
    assert_eq!(two.at(&[0, 1]).peer.at, None);
    assert_eq!(two.at(&[1, 1]).peer.at.as_deref(), Some("ssh://c"));
    let other = Factor {
        name: Some("card".to_owned()),
        ..host.clone()
    };
    let error = experiment(vec![host, other]).check().expect_err("whose?");
    assert_eq!(error.to_string(), "card: the peer is varied by `host` too");
}

fn server(at: ServerAt) -> LoadedServer {
    LoadedServer {
        url: "http://10.77.0.1/".to_owned(),
        address: "10.77.0.1:80".parse().expect("an address"),
        host: "10.77.0.1".to_owned(),
        path: "/".to_owned(),
        command: None,
        at,
    }
}

/// A factor with settings of both hosts, and a setting of one.
const LOADED: &str = r#"{
    "title": "t",
    "workload": "http",
    "optional": ["sysctl/a", "sysctl/b"],
    "settings": { "sysctl/c": 1 },
    "peer": { "settings": { "sysctl/c": 1 } },
    "factors": [
        {
            "name": "steering",
            "levels": [
                { "name": "none" },
                { "name": "RPS", "settings": { "sysctl/a": 1 }, "peer": { "settings": { "sysctl/b": 1 } } }
            ]
        },
        { "setting": "sysctl/d", "levels": ["baseline", 1] }
    ]
}"#;

#[test]
fn only_the_host_of_a_loaded_server_is_changed() {
    let experiment: Experiment = serde_json::from_str(LOADED).expect("an experiment");
    experiment.check_for_server().expect("it loads with http");
    for (at, local) in [
        (ServerAt::Here, true),
        (ServerAt::Elsewhere, true),
        (ServerAt::Peer, false),
    ] {
        let mut loaded = experiment.clone();
        loaded
            .load(server(at))
            .expect("each level changes the server");
        assert_eq!(loaded.check(), Ok(()), "{at:?}");
        let whole = loaded.at(&[1, 1]);
        let keys = |words: &Words| words.keys().cloned().collect::<Vec<String>>();
        let (mine, others) = (keys(&whole.settings), keys(&whole.peer.settings));
        let (changed, untouched) = if local {
            (mine, others)
        } else {
            (others, mine)
        };
        let own = if local { "sysctl/a" } else { "sysctl/b" };
        assert_eq!(changed, [own, "sysctl/c", "sysctl/d"], "{at:?}");
        assert!(untouched.is_empty(), "{at:?}: {untouched:?}");
        assert_eq!(loaded.optional, [own], "{at:?}");
        assert_eq!(loaded.factors[1].name(), "sysctl/d");
    }
}

#[test]
fn what_a_loaded_server_cannot_vary_is_refused() {
    let refused = |from: &str, to: &str| {
        let text = LOADED.replace(from, to);
        let mut experiment: Experiment = serde_json::from_str(&text).expect("an experiment");
        let checked = experiment.check_for_server();
        let loaded = checked.and_then(|()| experiment.load(server(ServerAt::Here)));
        loaded.expect_err(to).to_string()
    };
    assert!(refused("\"http\"", "\"stream\"").contains("`http` only"));
    let other_peer = refused(
        "\"name\": \"none\"",
        "\"name\": \"none\", \"peer\": { \"at\": \"ssh://b\" }",
    );
    assert!(other_peer.contains("another peer"), "{other_peer}");
    let only_of_load = refused(
        LOADED.split_once("\"factors\"").expect("factors").1,
        ": [{ \"name\": \"steering\", \"levels\": [{ \"name\": \"none\" }, \
         { \"name\": \"RPS\", \"peer\": { \"settings\": { \"sysctl/b\": 1 } } }] }] }",
    );
    assert!(
        only_of_load.contains("`RPS` changes only the host that generates"),
        "{only_of_load}"
    );
}

#[test]
fn a_block_device_has_no_peer_to_reach_or_change() {
    let checked = |more: &str| {
        let text = format!(
            "{{ \"title\": \"t\", \"workload\": \"block\", \"factors\": [\
             {{ \"option\": \"depth\", \"levels\": [1, 32] }}] {more} }}"
        );
        let experiment: Experiment = serde_json::from_str(&text).expect("an experiment");
        experiment.check().map_err(|error| error.to_string())
    };
    assert_eq!(checked(", \"device\": \"/dev/nvme0n1\""), Ok(()));
    let refused = |more: &str| checked(more).expect_err(more);
    assert!(refused(", \"peer\": { \"at\": \"ssh://b\" }").contains("no peer"));
    let beside = ", \"beside\": [{ \"workload\": \"stream\" }]";
    assert!(refused(beside).contains("at the same time"));
    let factor = |factor: &str| {
        let text =
            format!("{{ \"title\": \"t\", \"workload\": \"block\", \"factors\": [{factor}] }}");
        let experiment: Experiment = serde_json::from_str(&text).expect("an experiment");
        experiment.check().map_err(|error| error.to_string())
    };
    let setting = "\"setting\": \"block/@/nomerges\", \"levels\": [0, 2]";
    let both = factor(&format!("{{ {setting} }}")).expect_err("both hosts by default");
    assert!(both.contains("on = \"local\""), "{both}");
    assert_eq!(
        factor(&format!("{{ {setting}, \"on\": \"local\" }}")),
        Ok(())
    );
    let other = factor("{ \"option\": \"workload\", \"levels\": [\"block\", \"stream\"] }");
    assert!(other.expect_err("two kinds").contains("every trial"));
}

#[test]
fn a_factor_of_the_load_generator_is_left_out_and_the_others_are_kept() {
    let text = LOADED.replace("\"settings\": { \"sysctl/a\": 1 }, ", "");
    let text = text.replace(
        "\"factors\"",
        "\"design\": { \"kind\": \"one-at-a-time\", \"crossed\": [\"steering\"] },
         \"published\": [{ \"source\": \"s\", \"response\": \"operations\", \"figures\": [
             { \"at\": { \"steering\": \"RPS\" }, \"figure\": \"9 /s\" },
             { \"at\": { \"sysctl/d\": 1 }, \"figure\": \"8 /s\" }] }],
         \"factors\"",
    );
    let mut experiment: Experiment = serde_json::from_str(&text).expect("an experiment");
    let left_out = experiment
        .load(server(ServerAt::Here))
        .expect("a factor is left");
    assert_eq!(left_out.len(), 1);
    assert!(
        left_out[0].starts_with("steering: `RPS` changes only the host"),
        "{left_out:?}"
    );
    let names: Vec<&str> = experiment.factors.iter().map(Factor::name).collect();
    assert_eq!(names, ["sysctl/d"]);
    assert!(experiment.design.crossed.is_empty());
    assert_eq!(experiment.published[0].figures.len(), 1);
}
