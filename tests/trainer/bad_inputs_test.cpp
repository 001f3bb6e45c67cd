// Files that are not what they should be: a run says so at once, by file and key, and takes no
// memory for it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "tests/fuzz/mutant.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::bad_inputs_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun =
    "--model model --data qa.jsonl --prompt-field question "
    "--completion-field answer --seq-len 16 --steps 1 --deepspeed ds.json";

struct Usage {
  int code = -1;       // below 0: the signal's number
  double seconds = 0;  // of the processor, which others may share
  double mib = 0;      // at its highest
  std::string err;
};

Usage run(const Workbench& bench, const std::string& arguments,
          const std::string& program = "finetune") {
  const std::string command = fmt::format(
      "cd '{}' && DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 exec '{}/{}' {} > stdout 2> stderr",
      (bench / "").string(), ZEROTH_BIN_DIR, program, arguments);
  const char* const words[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t pid = 0;
  REQUIRE(::posix_spawn(&pid, "/bin/sh", nullptr, nullptr, const_cast<char**>(words), environ) ==
          0);
  int status = 0;
  rusage usage{};
  REQUIRE(::wait4(pid, &status, 0, &usage) == pid);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .mib = static_cast<double>(usage.ru_maxrss) / 1024,
          .err = bench.read("stderr")};
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string safetensors(const std::string& header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header;
}

// model/config.json with another value under a key.
void change_config(const Workbench& bench, const std::string& key, const nlohmann::json& value) {
  auto config = nlohmann::json::parse(bench.read("model/config.json"));
  config[key] = value;
  bench.write("model/config.json", config.dump());
}

void change_tokenizer(const Workbench& bench, const std::string& where,
                      const nlohmann::json& value) {
  auto file = nlohmann::json::parse(bench.read("model/tokenizer.json"));
  file[nlohmann::json::json_pointer(where)] = value;
  bench.write("model/tokenizer.json", file.dump());
}

void replace(const Workbench& bench, const std::string& name, const std::string& by) {
  fs::remove(bench / name);
  if (by == "FIFO") REQUIRE(::mkfifo((bench / name).c_str(), 0600) == 0);
  if (by == "folder") fs::create_directory(bench / name);
  if (by.starts_with('/')) fs::create_symlink(by, bench / name);
}

constexpr std::pair<const char*, const char*> kInPlace[] = {
    {"FIFO", "a FIFO"}, {"folder", "a folder"}, {"/dev/zero", "a device"}};

// Of a run that does nothing.
const Usage& nothing() {
  static const Usage usage = run(Workbench(), "--help");
  return usage;
}

// What a terminal obeys, but for the end of a line: C0, DEL, C1 in UTF-8.
bool has_control_bytes(const std::string& text) {
  uint8_t before = 0;
  for (const char character : text) {
    const auto byte = static_cast<uint8_t>(character);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return true;
    if (std::exchange(before, byte) == 0xc2 && byte >= 0x80 && byte < 0xa0) return true;
  }
  return false;
}

struct Case {
  std::function<void(const Workbench&)> spoil;
  std::string said;  // must stand in the message
  std::string arguments = kRun;
};

// Exit code 2, one printable message, less than 2 s and 500 MB more than a run that does nothing.
void expect_refused(const Case& bad) {
  const Workbench bench;
  bench.write("ds.json", "{}");
  bad.spoil(bench);
  const Usage usage = run(bench, bad.arguments);
  INFO(bad.said << " | " << usage.err.substr(0, 500));
  CHECK(usage.code == 2);
  CHECK(usage.err.starts_with("finetune: error: "));
  CHECK(has(usage.err, bad.said));
  CHECK(usage.err.size() < 4000);
  CHECK_FALSE(has(usage.err, "json.exception"));
  CHECK_FALSE(has_control_bytes(usage.err));
  CHECK(usage.seconds - nothing().seconds < 2);
  CHECK(usage.mib - nothing().mib < 500);
}

}  // namespace

TEST_CASE("JSON that is too deep is refused in each file that holds it") {
  const std::string deep = repeat("{\"a\":", 80'000);
  const std::pair<const char*, std::string> files[] = {
      {"ds.json", deep},
      {"model/config.json", deep},
      {"model/tokenizer.json", deep},
      {"model/tokenizer_config.json", deep},
      {"qa.jsonl", deep},
      {"model/model.safetensors.index.json", deep},
      {"model/model.safetensors", safetensors(repeat("[", 400'000))}};
  for (const auto& [name, text] : files) {
    expect_refused(
        {[&, name = name, text = text](const Workbench& bench) { bench.write(name, text); },
         "nested deeper than 128 levels"});
  }
}

TEST_CASE("JSON of very many values or bytes is refused before it takes memory") {
  const std::string wide = "[" + repeat("{},", 20'000'000) + "0]";
  expect_refused({[&](const Workbench& bench) { bench.write("model/tokenizer.json", wide); },
                  "model/tokenizer.json:1:3749999: more than 2500000 values"});
  expect_refused({[&](const Workbench& bench) { bench.write("model/config.json", wide); },
                  "model/config.json has 60000003 bytes; the limit is 16777216"});
  const std::string texts =
      "{\"a\": [" + repeat("\"aaaaaaaaaaaaaaaaaaaaaaaa\",", 2'400'000) + "0]}";
  expect_refused(
      {[&](const Workbench& bench) { bench.write("model/model.safetensors", safetensors(texts)); },
       "the header's entry for tensor a is malformed"});
}

TEST_CASE("what stands in a file's place is named at once") {
  const std::string run = kRun;
  const auto on = [](const char* data) {
    return fmt::format("--model model --data {} --seq-len 16 --steps 1 --deepspeed ds.json", data);
  };
  const std::pair<const char*, std::string> files[] = {
      {"ds.json", run},
      {"model/config.json", run},
      {"model/tokenizer.json", run},
      {"model/tokenizer_config.json", run},
      {"model/generation_config.json", run},
      {"model/model.safetensors", run},
      {"model/model.safetensors.index.json", run},
      {"qa.jsonl", run},
      {"train.bin", on("train.bin")},
      {"a.txt", on("a.txt")},
      {"eval.jsonl", run + " --eval-data eval.jsonl"}};
  for (const auto& [name, arguments] : files) {
    for (const auto& [by, kind] : kInPlace) {
      const auto spoil = [name = name, by = by](const Workbench& bench) {
        if (name == std::string("model/generation_config.json"))  // where the end of text is told
          bench.write("model/tokenizer_config.json", "{}");
        replace(bench, name, by);
      };
      const bool of_samples =
          !std::string(name).ends_with(".json") && !std::string(name).starts_with("model/");
      const std::string said = by == std::string("folder") && of_samples
                                   ? fmt::format("{} has no file of samples", name)
                                   : fmt::format("{} is {}, expected a file", name, kind);
      expect_refused({spoil, said, arguments});
    }
  }
}

TEST_CASE("check-config names what stands in its file's place") {
  for (const auto& [by, kind] : kInPlace) {
    const Workbench bench;
    replace(bench, "ds.json", by);
    const Usage usage = run(bench, "check-config ds.json", "zeroth");
    CHECK(usage.code == 2);
    CHECK(usage.err == fmt::format("zeroth: error: ds.json is {}, expected a file\n", kind));
  }
}

TEST_CASE("200,000 keys that stand twice below a long path take neither time nor memory") {
  std::string text;
  for (int level = 0; level < 126; ++level) text += "{\"" + std::string(1000, 'k') + "\":";
  text += "{\"x\":0" + repeat(",\"x\":0", 200'000) + std::string(127, '}');
  expect_refused({[&](const Workbench& bench) { bench.write("ds.json", text); },
                  " bytes): duplicate key in the same object: keep one\n"});
  expect_refused({[&](const Workbench& bench) { bench.write("model/tokenizer.json", text); },
                  "tokenizer.json: "});
}

TEST_CASE("numbers that no model has are refused by their key") {
  using nlohmann::json;
  const auto config = [](const char* key, const json& value) {
    return [=](const Workbench& bench) { change_config(bench, key, value); };
  };
  const auto tokenizer = [](const char* where, const json& value) {
    return [=](const Workbench& bench) { change_tokenizer(bench, where, value); };
  };
  const Case cases[] = {
      {config("num_hidden_layers", 10'000'000), "num_hidden_layers is 10000000, expected at most"},
      {config("num_attention_heads", int64_t{1} << 33), "num_attention_heads is 8589934592"},
      {config("vocab_size", 1e15), "vocab_size is 1"},
      {config("hidden_size", -1), "hidden_size is -1, expected a whole number"},
      {tokenizer("/model/vocab/zz", 100'000'000), "model.vocab.zz is 100000000, expected"},
      {tokenizer("/model/vocab/zz", -1), "model.vocab.zz is -1, expected"},
      {tokenizer("/added_tokens/0/id", -5), "added_tokens[0].id is -5, expected"},
      {[](const Workbench& bench) { bench.write("ds.json", "{\"gradient_clipping\": 1e9990}"); },
       "ds.json:1:28: gradient_clipping: the number 1e9990 is out of range"}};
  for (const Case& bad : cases) expect_refused(bad);
}

TEST_CASE(
    "60,000 unknown keys are refused in ds_config.json and noted in config.json, in linear time") {
  nlohmann::json many = nlohmann::json::object(), longs = many;
  for (int i = 0; i < 60'000; ++i) many[fmt::format("key{}", i)] = i;
  for (int i = 0; i < 3'000; ++i) longs[std::string(3'000, 'k') + std::to_string(i)] = i;
  for (const auto& keys : {many, longs}) {
    const nlohmann::json in_a_section = {{"zero_optimization", keys}};
    expect_refused({[&](const Workbench& bench) { bench.write("ds.json", in_a_section.dump()); },
                    fmt::format("ds.json: {} errors", keys.size())});
    const Workbench bench;
    bench.write("ds.json", "{}");
    auto config = nlohmann::json::parse(bench.read("model/config.json"));
    config.update(keys);
    bench.write("model/config.json", config.dump());
    const Usage usage = run(bench, std::string(kRun) + " --print-config");
    CHECK(usage.code == 0);
    CHECK(usage.seconds - nothing().seconds < 2);
  }
}

TEST_CASE("what either program prints of mutants of a configuration holds no control byte") {
  const Workbench bench;
  std::vector<std::string> originals;
  for (const auto& file :
       fs::directory_iterator(fs::path(ZEROTH_SOURCE_DIR) / "tests/fuzz/corpus/ds_config")) {
    originals.push_back(read_text(file));
  }
  std::sort(originals.begin(), originals.end());
  int with_control_bytes = 0;
  const auto check = [&](const Usage& usage) {
    CHECK((usage.code == 0 || usage.code == 2));
    CHECK_FALSE(has_control_bytes(bench.read("stdout") + usage.err));
  };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const std::string text = fuzz::mutant(originals, seed);
    with_control_bytes += has_control_bytes(text) ? 1 : 0;
    bench.write("ds.json", text);
    check(run(bench, "check-config ds.json", "zeroth"));
    if (seed % 10 == 0) check(run(bench, "--model model --print-config --deepspeed ds.json"));
  }
  CHECK(with_control_bytes > 20);
}

TEST_CASE("names with control bytes are shown escaped, on the console and on the page") {
  const Workbench bench;
  bench.write("ds.json", "{}");
  fs::rename(bench / "model", bench / "m\x1b[2J\n\xff");
  std::string line = kRun;
  line.replace(line.find("model model"), 11, "model m*");
  const Usage usage = run(bench, line + " --output out");
  CHECK_MESSAGE(usage.code == 0, usage.err);
  for (const char* const file : {"stdout", "out/train_log.html"}) {
    const std::string text = bench.read(file);
    INFO(file);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\xff') == std::string::npos);
    CHECK(has(text, "u001b[2J"));
  }
}

}  // namespace zeroth::trainer::bad_inputs_test
