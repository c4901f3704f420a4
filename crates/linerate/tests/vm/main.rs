//! The real program in a virtual machine (`testbed/vm`), where the kernel has what no namespace here can
//! have: NUMA nodes, queues with interrupts, RDMA, VLANs, bonds, netem, a disk that outlives a power cut.
//!
//! One guest serves all tests, until one of them fails, so this program is its own harness: it boots the guest,
//! runs the tests one after the other, and prints what libtest would. Where there can be no guest, the whole set is one
//! `SKIP:` line. Run by `make test`; `cargo test -p linerate --test vm -- NAME` runs those named so, and `--part 1/2`
//! every second one, so that two guests share the work.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's main talks"
)]

mod agent;
mod block;
mod cards;
mod classes;
mod failover;
mod guards;
mod guest;
mod hardware;
mod iwarp;
mod lab;
mod network;
mod persist;
mod qos;
mod rdma;
#[path = "../it/schema.rs"]
mod schema;
mod service;
mod settings;
mod testbed;
mod verbs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use guest::Guest;

type Test = (&'static str, fn(&Guest));

/// Names its functions as libtest would.
macro_rules! tests {
    ($($room:ident::$name:ident),* $(,)?) => {
        [$((concat!(stringify!($room), "::", stringify!($name)), $room::$name)),*]
    };
}

/// The power cuts stand last: what others left in the kernel's memory goes with them.
const TESTS: [Test; 90] = tests![
    guest::a_command_brings_back_its_output_exit_code_and_time,
    hardware::a_nic_lies_on_its_node_with_its_queues_and_their_interrupts,
    hardware::an_interrupts_cpus_are_set_read_back_and_judged,
    hardware::a_card_that_could_do_more_than_its_pcie_link_is_found,
    hardware::a_block_device_tells_its_hardware_queues,
    block::null_blk_is_measured_on_one_queue_on_several_and_polled,
    block::a_scsi_disk_is_read_with_each_scheduler_and_not_written_while_the_roots_disk_is_unknown,
    block::a_virtio_disk_has_interrupts_and_a_node,
    block::the_experiment_compares_one_queue_with_several_and_polls_where_there_are_polled_queues,
    block::the_experiment_reads_scsi_disks_with_each_scheduler_and_restores_it,
    block::the_fix_of_a_scheduler_on_nvme_is_tested_and_kept_only_if_it_helps,
    block::a_longer_queue_that_helps_is_kept_and_undone_by_one_command,
    network::vlans_bonds_and_tunnels_are_in_the_map,
    network::a_bond_tells_the_port_that_took_over,
    network::queueing_disciplines_are_in_the_map_and_judged,
    classes::vlan_devices_are_made_and_removed_and_undone_whole,
    classes::leaves_of_queues_and_classes_are_made_and_undone,
    classes::hierarchies_of_others_are_restored_with_filters_of_each_kind,
    qos::limits_hold_on_bonds_and_a_port_without_one_and_a_forgotten_map_are_named,
    qos::the_reports_file_is_planned_made_verified_and_undone_to_the_byte,
    qos::an_apply_that_is_killed_at_a_step_is_rolled_back_whole,
    qos::a_nic_with_traffic_classes_holds_the_limits_itself,
    qos::a_nic_limits_the_queues_of_each_class_if_the_file_names_that,
    qos::networkd_makes_vlans_with_whole_egress_maps_of_the_printed_lines,
    network::loss_on_the_way_is_named,
    network::a_window_below_what_the_round_trip_holds_is_named,
    testbed::a_pair_is_made_used_and_taken_away_without_a_trace,
    testbed::a_device_of_others_keeps_the_module,
    testbed::a_maker_that_was_killed_leaves_what_a_removal_takes_away,
    testbed::what_rdma_lacks_at_either_end_is_named_by_its_exit_code,
    testbed::a_lag_over_two_switches_outlives_a_member,
    testbed::what_detects_the_failure_of_a_member_of_a_lag_is_named,
    testbed::a_bond_without_miimon_does_not_use_its_backup,
    testbed::a_program_that_was_not_changed_is_carried_by_rsocket,
    rdma::soft_roce_is_an_rdma_device_of_its_nic,
    rdma::two_soft_roce_devices_reach_each_other,
    rdma::what_rdma_cm_takes_by_default_is_set_and_put_back,
    verbs::every_byte_of_every_verb_and_mode_is_the_right_one,
    verbs::a_changed_byte_fails_every_verb_and_mode,
    verbs::a_measurement_over_verbs_tells_what_it_cost_and_what_limits_it,
    verbs::buffers_lie_on_the_node_of_the_device,
    verbs::options_of_queue_pairs_reach_the_device_or_are_refused,
    verbs::workloads_are_the_same_over_verbs_and_over_tcp,
    verbs::a_grid_is_the_same_over_verbs_and_over_tcp_bit_for_bit,
    service::verbs_are_measured_with_a_listening_agent,
    lab::an_experiment_holds_verbs_against_tcp,
    verbs::memory_that_may_not_be_pinned_is_said_with_its_limit,
    verbs::a_port_that_is_down_and_a_peer_that_is_out_of_reach_are_told_apart,
    verbs::a_key_that_the_far_end_did_not_give_is_refused_by_its_device,
    verbs::one_agent_lives_on_from_fault_to_fault,
    verbs::an_end_that_is_killed_leaves_nothing_registered,
    verbs::a_device_that_goes_away_in_mid_run_ends_the_trial_and_the_agent_lives_on,
    verbs::a_device_that_is_deleted_in_mid_run_is_let_go_of,
    failover::an_interruption_of_rdma_writes_is_as_long_as_the_path_s_and_the_devices_retries,
    failover::without_a_device_on_the_path_rdma_writes_are_skipped_by_name,
    verbs::a_user_who_may_not_use_the_device_is_told_so,
    iwarp::an_iwarp_device_is_one_of_its_nic_and_carries_every_byte,
    iwarp::messages_of_iwarp_are_sent_when_there_is_room_for_them,
    iwarp::ports_that_tcp_has_are_passed_over_by_iwarp,
    iwarp::a_changed_byte_over_iwarp_fails,
    iwarp::what_iwarp_does_not_have_is_said_and_a_killed_end_leaves_nothing,
    settings::all_that_can_be_written_is_set_read_back_and_undone,
    settings::pause_frames_are_set_read_back_and_undone,
    settings::disciplines_are_made_with_their_parameters_and_put_back,
    settings::what_a_port_offers_is_changed_and_put_back,
    settings::interrupts_are_spread_close_to_their_card_by_one_command,
    settings::a_cpu_that_is_taken_out_of_use_comes_back_with_its_interrupts,
    settings::a_cpu_that_went_away_meanwhile_is_told_and_its_settings_come_back_after_it,
    settings::irqbalance_leaves_alone_what_it_is_told_and_a_machine_is_held_steady_for_a_command,
    settings::cpus_that_are_kept_slow_are_found_and_told_to_be_fast,
    settings::what_the_kernel_refuses_changes_nothing,
    settings::a_clock_that_is_set_meanwhile_does_not_move_the_deadline,
    cards::the_key_and_the_fields_of_a_receive_hash_are_set_read_back_and_undone,
    cards::what_no_emulated_card_takes_is_set_read_back_and_undone,
    cards::delays_of_single_queues_come_back_after_one_for_all,
    cards::shares_that_a_card_refuses_are_told_and_nothing_stays,
    cards::a_card_whose_changes_are_cut_short_at_any_step_is_old_or_new,
    guards::what_namespaces_share_is_locked_until_a_killed_makers_reverter_is_done,
    guards::a_reverter_that_does_not_end_is_named_and_left_alone_with_its_lock,
    guards::with_both_killed_systemd_takes_everything_back_shortly_after_the_deadline,
    service::a_host_is_paired_and_measures_by_the_socket_unit_that_packages_install,
    settings::a_power_cut_amid_changes_leaves_nothing_to_mend,
    qos::three_vlans_are_made_limited_and_taken_away_to_the_byte,
    qos::what_persists_is_made_at_each_boot_and_undone_for_good,
    persist::what_cannot_be_kept_is_said_and_nothing_is_left,
    persist::what_is_kept_at_once_is_undone_with_every_trace,
    persist::of_changes_of_two_hosts_the_other_half_is_named,
    persist::what_is_kept_is_made_again_at_boot_and_undone_for_good,
    persist::a_boot_that_leaves_the_machine_worse_off_takes_it_back_and_is_not_tried_again,
    persist::a_machine_that_goes_down_twice_at_its_boots_changes_boots_without_them,
];

/// `1/2` is the first of two parts: from 0, and how many there are.
fn part_of(words: &str) -> Option<(usize, usize)> {
    let (number, parts) = words.split_once('/')?;
    let (number, parts) = (number.parse().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&number).then(|| (number - 1, parts))
}

/// Keeps the words of the newest panic, which still appear on standard error.
fn remember_panics() -> Arc<Mutex<Option<String>>> {
    let newest = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&newest);
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = format!("thread 'main' {panic}");
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
        shown(panic);
    }));
    newest
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let part = words.iter().position(|word| word == "--part");
    let (number, parts) = match part.map(|at| {
        words
            .drain(at..)
            .take(2)
            .nth(1)
            .and_then(|word| part_of(&word))
    }) {
        None => (0, 1),
        Some(Some(part)) => part,
        Some(None) => {
            eprintln!("error: `--part` takes a part of all, such as 1/2");
            return ExitCode::from(2);
        }
    };
    words.retain(|word| !word.starts_with('-'));
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let wanted = TESTS.into_iter().filter(|(name, _)| is_wanted(name));
    let wanted: Vec<Test> = wanted.skip(number).step_by(parts).collect();
    let panics = remember_panics();
    let mut failures = Vec::new();
    let mut guest = None;
    for (name, test) in &wanted {
        let Some(held) = guest.take().or_else(Guest::hold) else {
            return ExitCode::from(u8::from(!failures.is_empty()));
        };
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&held)));
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word}");
        println!("     {:.1} s", began.elapsed().as_secs_f64());
        if outcome.is_err() {
            let panic = panics.lock().unwrap_or_else(PoisonError::into_inner).take();
            failures.push((name, panic.unwrap_or_default()));
            eprintln!("--- the guest's console\n{}", held.console());
            // What this test left behind does not affect the next one, which gets its own guest.
            drop(held);
        } else {
            guest = Some(held);
        }
    }
    // As libtest prints them, so that whoever counts the tests can quote them.
    for (name, panic) in &failures {
        println!("\n---- {name} stdout ----\n{panic}");
    }
    let failed = failures.len();
    let passed = wanted.len() - failed;
    let (word, code) = match failed {
        0 => ("ok", ExitCode::SUCCESS),
        _ => ("FAILED", ExitCode::FAILURE),
    };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
    code
}
