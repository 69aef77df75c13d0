//! `offload bench advise`: from which size on to offload. What it advises is that of the machine, so only what holds on all of them is
//! tested here; whether it is right, on costs that are known, is tested beside the model (`bench/advice.rs`).

use offload_supervisor::{Place, Policy};
use serde_json::Value;
use tests::harness::{private_folder, run_offload};

/// As short as it can be.
const SHORT: [&str; 6] = ["bench", "advise", "--workers", "2", "--seconds", "0.5"];

fn crossing(found: &Value) -> Option<u64> {
    match found["found"].as_str() {
        Some("at") => {
            let sizes = ["low", "size", "high"].map(|name| found[name].as_u64().expect("a size"));
            assert!(sizes.is_sorted(), "{found}");
            Some(sizes[1])
        }
        Some("from_the_smallest") => found["size"].as_u64(),
        _ => {
            assert!(found["found"] == "never" && found["size"].is_u64(), "{found}");
            None
        }
    }
}

#[test]
fn the_advice_has_a_crossover_a_slice_and_a_number_of_workers() {
    let folder = private_folder();
    let file = folder.path().join("policy.json");
    let written = ["--json", "--lag-slo", "1ms", "--write", file.to_str().expect("a path")];
    let advice = run_offload(&[&SHORT[..], &written].concat()).ok().json();
    let sizes = advice["sizes"].as_array().expect("a list");
    assert!(sizes.iter().all(|row| row["on_loop_us"].as_f64() > Some(0.0)), "{advice}");
    assert!(
        sizes.iter().is_sorted_by_key(|row| row["size"].as_u64()) && sizes[0]["size"] == 1000,
        "{advice}"
    );
    assert_eq!(advice["offload_from"].as_u64(), crossing(&advice["crossover"]), "{advice}");
    crossing(&advice["too_late"]);
    let counts = &advice["worker_counts"];
    let pay_off = counts["pay_off"].as_u64().expect("a number");
    assert!(
        (1..=counts["jobs_per_s"].as_array().expect("a list").len() as u64).contains(&pay_off),
        "{counts}"
    );
    assert_eq!(advice["slice"]["us"], 500);

    let known = Policy::read(&file).expect("a policy").tasks["average"];
    assert_eq!((known.offload_from, known.slice_us), (advice["offload_from"].as_u64(), 500));
    let text = run_offload(&[&SHORT[..], &["--task", "thumbnail"], &written[3..]].concat()).ok().text();
    assert!(
        text.contains("it cannot be partitioned") && text.contains("jobs/s by the number of workers"),
        "{text}"
    );
    let both = Policy::read(&file).expect("a policy");
    assert_eq!(both.tasks.keys().collect::<Vec<_>>(), ["average", "thumbnail"]);
    assert_eq!(both.place("unknown", 1), Place::Offloaded);
}

#[test]
fn a_file_that_is_no_policy_is_not_replaced() {
    let folder = private_folder();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "mine").expect("a file");
    let ran = run_offload(&[&SHORT[..], &["--write", file.to_str().expect("a path")]].concat()).code(2);
    assert!(ran.stderr.contains("is no policy"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "mine");
    run_offload(&["bench", "advise", "--task", "echo"]).code(2);
}
