//! The program for people: command line, session, agent, peer, store, analysis and report.

#![forbid(unsafe_code)]

pub mod report;
