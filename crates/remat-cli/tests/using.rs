//! Using what was trained: `remat generate` writes text, `remat predict` classifies images; and what they say to bad input.

mod common;

use common::Folder;

const GPT: &[&str] =
    &["--batch", "4", "--seq", "32", "--dim", "32", "--layers", "1", "--heads", "2", "--lr", "0.01"];

/// Trains a tiny language model on a text that repeats itself.
fn train_text(folder: &Folder, tokenizer: &str, run: &str) {
    folder.write("text.txt", &"the cat sat on the mat and the dog sat on the log. ".repeat(120));
    let words = format!("train gpt --data text.txt --tokenizer {tokenizer} --steps 300 --checkpoint {run}");
    folder.run(&words, GPT).exits(0);
}

#[test]
fn a_trained_language_model_writes_text_in_a_known_amount_of_memory() {
    let folder = Folder::new();
    for (tokenizer, run) in [("bytes", "a"), ("bpe:300", "b")] {
        train_text(&folder, tokenizer, run);
        let words = format!("generate {run} --tokens 40 --temperature 0 --prompt");
        let ran = folder.run(&words, &["the cat "]).exits(0);
        assert!(ran.stdout.starts_with("the cat ") && ran.stdout.len() > 30, "{}", ran.stdout);
        // A text of a dozen words: whatever is written is made of them.
        let known = ["the", "cat", "sat", "on", "mat", "and", "dog", "log"];
        let found =
            ran.stdout.split(|c: char| !c.is_alphabetic()).filter(|word| known.contains(word)).count();
        assert!(found >= 4, "{}", ran.stdout);
        assert!(ran.stderr.contains("40 tokens in") && ran.stderr.contains("of memory"), "{}", ran.stderr);
        let sampled = |seed: &str| {
            let words =
                format!("generate {run} --tokens 30 --top-k 8 --temperature 1.5 --seed {seed} --json");
            folder.run(&words, &[]).exits(0).json("remat.generate/1")["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(sampled("3"), sampled("3"));
        assert_ne!(sampled("3"), sampled("4"));
    }
}

#[test]
fn a_trained_classifier_names_the_class_of_an_image() {
    let folder = Folder::new();
    for (class, colour) in [("blue", [10u8, 20, 240]), ("red", [230, 30, 20])] {
        std::fs::create_dir_all(folder.path(&format!("images/{class}"))).unwrap();
        for i in 0..10u32 {
            write_png(&folder.path(&format!("images/{class}/{i}.png")), 8 + i, colour);
        }
    }
    let options = ["--batch", "8", "--image", "32", "--lr", "0.0005"];
    folder.run("train resnet18 --data images --steps 40 --checkpoint run", &options).exits(0);
    write_png(&folder.path("a.png"), 40, [20, 10, 220]);
    write_png(&folder.path("b.png"), 23, [250, 10, 10]);
    let ran = folder.run("predict run a.png b.png --json", &[]).exits(0);
    let document = ran.json("remat.predict/1");
    for (i, class) in ["blue", "red"].iter().enumerate() {
        assert_eq!(document["images"][i]["classes"][0]["class"], *class, "{document}");
    }
    assert!(document["peak_bytes"].as_u64().unwrap() > 40_000_000, "weights are memory, too");
    let ran = folder.run("predict run a.png --top 1", &[]).exits(0);
    assert!(ran.stdout.contains("a.png") && ran.stdout.contains("blue"), "{}", ran.stdout);

    folder.write("none.png", "this is no picture");
    folder.run("predict run none.png", &[]).exits(2).complains(&["none.png", "cannot be decoded"]);
    folder.run("predict run missing.png", &[]).exits(2).complains(&["missing.png"]);
    folder.run("generate run --prompt x", &[]).exits(2).complains(&["was not trained on text"]);
}

#[test]
fn wrong_folders_and_flags_get_a_message() {
    let folder = Folder::new();
    folder.run("generate nowhere", &[]).exits(2).complains(&["nowhere", "not a folder of a run"]);
    std::fs::create_dir(folder.path("empty")).unwrap();
    folder.run("generate empty", &[]).exits(2).complains(&["empty", "no checkpoint"]);
    train_text(&folder, "bytes", "run");
    folder.run("generate run --temperature nan", &[]).exits(2).complains(&["--temperature"]);
    folder.run("generate run --temperature -1", &[]).exits(2).complains(&["--temperature", "at least zero"]);
    folder.run("generate run --top-k 0", &[]).exits(2).complains(&["--top-k", "at least 1"]);
    folder.write("x.png", "x");
    folder.run("predict run x.png", &[]).exits(2).complains(&["x.png"]);
    write_png(&folder.path("y.png"), 9, [1, 2, 3]);
    folder.run("predict run y.png", &[]).exits(2).complains(&["was not trained on images"]);

    // A damaged tokenizer, a description that is none, and a checkpoint that was cut off.
    let description = folder.read("run/run.json");
    folder.write("run/run.json", &description.replace("\"bytes\"", "{\"byte_pairs\":{\"model\":{}}}"));
    folder.run("generate run", &[]).exits(2).complains(&["run.json", "tokenizer"]);
    folder.write("run/run.json", "{");
    folder.run("generate run", &[]).exits(2).complains(&["run.json", "not a description of a run"]);
    folder.write("run/run.json", &description);
    let checkpoints = ["run/step-00000300.safetensors", "run/step-00000200.safetensors"];
    for (i, checkpoint) in checkpoints.iter().enumerate() {
        let whole = std::fs::read(folder.path(checkpoint)).unwrap();
        std::fs::write(folder.path(checkpoint), &whole[..whole.len() / 2]).unwrap();
        let ran = folder.run("generate run --tokens 5", &[]);
        if i == 0 {
            let ran = ran.exits(0);
            let warning = ran.stderr.contains("warning: skipping a damaged checkpoint: run/step-00000300");
            assert!(warning, "{}", ran.stderr);
        } else {
            ran.exits(2).complains(&["all of them are damaged"]);
        }
    }
}

fn write_png(path: &std::path::Path, width: u32, colour: [u8; 3]) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).expect("writable"), width, 6);
    encoder.set_color(png::ColorType::Rgb);
    let pixels = colour.repeat(width as usize * 6);
    let mut writer = encoder.write_header().expect("writable");
    writer.write_image_data(&pixels).expect("writable");
}
