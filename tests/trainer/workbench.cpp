#include "tests/trainer/workbench.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 448, "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "initializer_range": 0.05, "tie_word_embeddings": false,
  "rope_theta": 10000.0, "torch_dtype": "float32"})";

constexpr int64_t kTokens = 40 * 16 + 1;

// Words of a sentence that a model can learn.
std::string token_file() {
  std::string bytes;
  for (int64_t i = 0; i < kTokens; ++i) {
    const auto id = static_cast<uint16_t>((i * i + 3 * i) % 37 + 20);
    bytes.push_back(static_cast<char>(id & 0xff));
    bytes.push_back(static_cast<char>(id >> 8));
  }
  return bytes;
}

std::string questions() {
  std::string lines;
  for (int i = 0; i < 13; ++i) {
    std::string answer;
    for (int word = 0; word <= i; ++word) answer += fmt::format(" {}", word);
    lines += fmt::format("{{\"question\": \"count to {}:\", \"answer\": \"{}\"}}\n", i, answer);
  }
  return lines;
}

std::string end_of(const std::string& text) {
  constexpr size_t kShown = 4000;
  return text.substr(text.size() - std::min(text.size(), kShown));
}

}  // namespace

Workbench::Workbench() {
  fs::create_directory(directory_ / "model");
  const fs::path tokenizer = fs::path(ZEROTH_SOURCE_DIR) / "tests/data/fixtures/gpt2";
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy(tokenizer / file, directory_ / "model" / file);
  }
  write("model/config.json", kConfig);
  write("train.bin", token_file());
  write("qa.jsonl", questions());
}

void Workbench::write(const std::string& name, const std::string& text) const {
  std::ofstream(directory_ / name, std::ios::binary) << text;
}

std::string Workbench::read(const std::string& name) const {
  std::ifstream file(directory_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Workbench::Result Workbench::zeroth(int ranks, const std::string& arguments) const {
  return shell(
      fmt::format("'{}/zeroth' --num_gpus {} finetune {}", ZEROTH_BIN_DIR, ranks, arguments));
}

Workbench::Result Workbench::finetune(const std::string& arguments,
                                      const std::string& environment) const {
  return shell(fmt::format("{} \"$FINETUNE\" {}", environment, arguments));
}

Workbench::Result Workbench::shell(const std::string& command, std::chrono::seconds limit) const {
  write("command.sh", fmt::format("export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1\n"
                                  "export FINETUNE='{}/finetune'\n{}\n",
                                  ZEROTH_BIN_DIR, command));
  const std::string whole =
      fmt::format("cd '{}' && timeout -s KILL {} sh command.sh > stdout 2> stderr < /dev/null",
                  directory_.string(), limit.count());
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(whole.c_str());
  Result result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("stdout"), read("stderr")};
  if (std::chrono::steady_clock::now() - start >= limit) {
    throw Error("killed after {} s: {}\nits output ends:\n{}\n{}", limit.count(), command,
                end_of(result.out), end_of(result.err));
  }
  return result;
}

Workbench::Rows Workbench::rows(const std::string& file, const std::string& key) const {
  Rows found;
  std::ifstream lines(directory_ / file);
  for (std::string line; std::getline(lines, line);) {
    auto row = nlohmann::json::parse(line);
    if (row.contains(key)) found.push_back(std::move(row));
  }
  return found;
}

std::string signalled_behind(const std::string& text, int signal) {
  return fmt::format("LD_PRELOAD='{}/tests/libsignal_behind.so' SIGNAL={} SIGNAL_BEHIND='{}'",
                     ZEROTH_BIN_DIR, signal, text);
}

std::string row_of_step(int64_t step) {
  return fmt::format(R"({{"step":{},"loss":)", step);
}

std::vector<double> losses(const Workbench::Rows& rows) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(row.at("loss").get<double>());
  return values;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace zeroth::trainer
