#include "tests/fuzz/readers.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <typeinfo>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "configs/inspect.h"
#include "configs/resolve.h"
#include "configs/schema/json_text.h"
#include "data/chat_template/chat_template.h"
#include "data/records/arrow_loader.h"
#include "data/samples/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "launcher/backends/forwarded_environment.h"
#include "launcher/backends/hostfile.h"
#include "launcher/backends/shell_words.h"
#include "launcher/flags/cli.h"
#include "launcher/machine/cores.h"
#include "launcher/run/slots.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/families/family.h"
#include "model/hf/model_modules.h"
#include "model/hf/safetensors.h"
#include "model/spec.h"
#include "monitor/curves.h"
#include "trainer/flags/flags.h"

namespace zeroth::fuzz {
namespace {

namespace fs = std::filesystem;

// A folder for the readers of files, until the process ends.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "zeroth_fuzz_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder can be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  // A file with these bytes; returns its path.
  static fs::path write(const std::string& name, std::string_view bytes) {
    static const Scratch scratch;
    const fs::path path = scratch.path_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path;
  }

 private:
  fs::path path_;
};

std::vector<std::string> lines_of(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    lines.emplace_back(line.substr(0, line.find('\0')));  // as an argument ends
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return lines;
}

void read_json_text(std::string_view bytes) {
  const auto tree =
      parse_json(bytes, {.name = "x.json", .duplicate_keys = DuplicateKeyPolicy::kReject});
  (void)quoted(tree);
  const auto ordered = parse_ordered_json(bytes, {.name = "x.json"});
  if (nlohmann::json::parse(ordered.dump()) != tree) throw Finding("two trees of one text");
}

void read_ds_config(std::string_view bytes) {
  const std::string text(bytes);
  const auto document = configs::parse_text(configs::decode_base64(text).value_or(text), "ds.json");
  (void)configs::inspect(document, {});
  const auto resolved =
      configs::resolve(document, {}, {.world_size = 2, .hidden_size = 64, .total_steps = 10});
  (void)configs::parse_text(configs::to_json(resolved.config, resolved.origins), "again.json");
}

// Also what follows from the spec, without building its blocks.
void read_model_config(std::string_view bytes) {
  model::ModelSpec spec = model::parse_model_spec(std::string(bytes), "config.json");
  const double operations = model::flops_per_token(spec, 256);
  if (!std::isfinite(operations) || operations <= 0) throw Finding("operations of no model");
  if (spec.num_heads % spec.num_kv_heads != 0) throw Finding("heads that share no whole groups");
  if (spec.delta_net && spec.delta_net->value_heads % spec.delta_net->key_heads != 0)
    throw Finding("value heads that share no whole groups");
  for (const model::RopeSpec& rope : {spec.rope, spec.local_rope})
    if (rope.rotary_dim < 0 || rope.rotary_dim > spec.head_dim || rope.rotary_dim % 2 != 0)
      throw Finding("rotary embeddings that do not fit");
  if (spec.padding_token >= spec.vocab_size) throw Finding("a padding token beyond the rows");
  spec.num_layers = std::min<int64_t>(spec.num_layers, 2);
  for (const model::ModelModule& module : model::list_modules(spec)) {
    for (const std::string& name : module.parameters)
      if (model::canonical_name(spec, model::stored_name(spec, name)) != name)
        throw Finding(name + " has the name of another parameter");
  }
}

void read_safetensors(std::string_view bytes) {
  const model::SafetensorsFile file(Scratch::write("x.safetensors", bytes));
  std::vector<model::ModelSpec> specs;
  for (const std::string_view family : model::family_names()) {
    if (model::find_family(family) != nullptr) specs.emplace_back().family = family;
  }
  for (const auto& [name, tensor] : file.tensors()) {
    const auto values = file.bytes(tensor);
    (void)std::vector<std::byte>(values.begin(), values.end());
    for (const model::ModelSpec& spec : specs) (void)model::canonical_name(spec, name);
  }
}

// Two shards stand beside the index, each with one tensor of no elements.
void read_index(std::string_view bytes) {
  for (const char shard : {'1', '2'}) {
    const std::string header =
        fmt::format(R"({{"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}}})", shard);
    const uint64_t size = header.size();
    Scratch::write(fmt::format("index/{}.safetensors", shard),
                   std::string(reinterpret_cast<const char*>(&size), 8) + header);
  }
  const auto path = Scratch::write("index/model.safetensors.index.json", bytes);
  const model::SafetensorsDirectory directory(path.parent_path());
}

// Without its last two lines; the CRC in them is that of whatever stands before.
void read_manifest(std::string_view bytes) {
  const std::string text =
      fmt::format("{}  \"crc32c\": \"{}\"\n}}\n", bytes, format_crc(crc32c(bytes)));
  const checkpoint::Manifest manifest = checkpoint::parse_manifest(text, "manifest.json");
  (void)checkpoint::coverage_errors(manifest.files);
  const std::string written = checkpoint::to_string(manifest);
  if (checkpoint::to_string(checkpoint::parse_manifest(written, "again.json")) != written)
    throw Finding("another manifest, once it is written and read");
}

void read_curves(std::string_view bytes) {
  const auto tree = parse_json(bytes, {.name = "curves.json"});
  monitor::Curves curves({"loss", "lr"}, 8);
  curves.restore(JsonView(tree));
  const auto saved = parse_json(curves.to_json().dump(), {.name = "again.json"});
  curves.restore(JsonView(saved));
  if (curves.to_json() != saved) throw Finding("other curves, once they are saved and restored");
  for (int64_t step = 0; step < 100; ++step) curves.add(step, {1, 2});
  if (curves.size() > 8) throw Finding("too many points");
}

void read_tokenizer(std::string_view bytes) {
  Scratch::write("tokenizer/tokenizer_config.json", R"({"eos_token": "b"})");
  const auto path = Scratch::write("tokenizer/tokenizer.json", bytes);
  const auto tokenizer = data::Tokenizer::load(path.parent_path());
  const auto ids = tokenizer.encode("ab aab <|x|> cab\u0301 12 bb\n\n  a");
  (void)tokenizer.decode(ids);
}

const std::string kTokenizer = R"({"added_tokens": [{"id": 259, "content": "<|x|>"}],
  "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "d": 4, "\u0120": 5}, "merges": ["a b"]}})";

void read_chat_template(std::string_view bytes) {
  static const auto context = nlohmann::ordered_json::parse(R"({"messages": [
    {"role": "user", "content": " a <b>\u00e9 "}, {"role": "assistant", "content": "c", "tool_calls": [{"name": "d", "arguments": {"x": 1.5}}]}],
    "tools": null, "add_generation_prompt": true, "bos_token": "<s>"})");
  const data::RenderOptions options = {
      .limits = {.max_steps = 100'000, .max_output_bytes = 1 << 20, .max_memory_bytes = 32 << 20},
      .now = {}};
  const auto chat = data::ChatTemplate::parse(bytes, "x.jinja").render(context, options);
  size_t end = 0;
  for (const data::SourceRange& range : chat.sources) {
    if (range.begin < end || range.end <= range.begin) throw Finding("ranges that overlap");
    end = range.end;
  }
  if (end > chat.text.size()) throw Finding("a range beyond the text");
}

void read_special_tokens(std::string_view bytes) {
  for (const char* const name : {"tokenizer_config.json", "generation_config.json"}) {
    const auto path = Scratch::write("special/tokenizer.json", kTokenizer);
    const auto file = Scratch::write(std::string("special/") + name, bytes);
    std::string error;
    try {
      (void)data::Tokenizer::load(path.parent_path());
    } catch (const Error& said) {
      error = said.what();
    }
    fs::remove(file);
    if (!error.empty()) throw Error(error);
  }
}

void read_samples(const char* name, std::string_view bytes, int64_t vocab_size) {
  static const data::Tokenizer tokenizer = [] {
    Scratch::write("data/tokenizer_config.json", R"({"eos_token": "<|x|>"})");
    return data::Tokenizer::load(Scratch::write("data/tokenizer.json", kTokenizer).parent_path());
  }();
  const auto dataset = data::open_dataset({.path = Scratch::write(name, bytes),
                                           .tokenizer = &tokenizer,
                                           .seq_len = 4,
                                           .vocab_size = vocab_size});
  for (int64_t i = 0; i < dataset->size(); ++i) {
    std::vector<int64_t> tokens(4), targets(4);
    dataset->fill(i, tokens, targets);
    const auto known = [=](int64_t id) { return id >= 0 && id < vocab_size; };
    if (!std::all_of(tokens.begin(), tokens.end(), known)) throw Finding("a token beyond the rows");
  }
}

void read_jsonl(std::string_view bytes) {
  read_samples("data/x.jsonl", bytes, 260);
}

void read_records(std::string_view bytes) {
  read_samples("data/x.json", bytes, 260);
}

void read_csv(std::string_view bytes) {
  read_samples("data/x.csv", bytes, 260);
}

void read_gzip(std::string_view bytes) {
  read_samples("data/x.jsonl.gz", bytes, 260);
}

void read_zstd(std::string_view bytes) {
  read_samples("data/x.jsonl.zst", bytes, 260);
}

void read_parquet(std::string_view bytes) {
  read_samples("data/x.parquet", bytes, 260);
}

void read_arrow(std::string_view bytes) {
  read_samples("data/x.arrow", bytes, 260);
}

// The index of 16 ids, and their mask if the first byte is 'm'.
void read_token_index(std::string_view bytes) {
  std::string ids;
  for (int id = 1; id <= 16; ++id) ids += {static_cast<char>(id), '\0'};
  const std::string_view index = bytes.substr(std::min<size_t>(1, bytes.size()));
  const auto file = Scratch::write("data/pair.idx", index);
  const auto mask = std::filesystem::path(file).replace_extension(".mask");
  std::filesystem::remove(mask);
  if (bytes.starts_with('m')) Scratch::write("data/pair.mask", "\xf0\x0f");
  read_samples("data/pair.bin", ids, 260);
}

void read_text_file(std::string_view bytes) {
  read_samples("data/x.txt", bytes, 260);
}

void read_bin(std::string_view bytes) {
  read_samples("data/x.bin", bytes.substr(std::min<size_t>(1, bytes.size())),
               bytes.starts_with('w') ? 70'000 : 50'000);
}

void read_flags(std::string_view bytes) {
  (void)trainer::parse_flags(lines_of(bytes));
}

// The first line: a list of cores and CUDA_VISIBLE_DEVICES.
void read_launch(std::string_view bytes) {
  std::vector<std::string> lines = lines_of(bytes);
  if (lines.empty()) return;
  (void)launcher::visible_gpus(4, lines.front());
  const auto options = launcher::parse_command_line({lines.begin() + 1, lines.end()});
  const launcher::Machine machine{.cores = {0, 1, 2, 3}, .gpus = {"0", "1"}};
  (void)launcher::parse_core_list(lines.front(), machine.cores);
  (void)launcher::choose_slots(options, launcher::Accelerator::kCuda, machine);
}

// The first line: a filter of hosts.
void read_hosts(std::string_view bytes) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  launcher::LaunchOptions options;
  options.include = bytes.substr(0, end);
  (void)launcher::shell_split(bytes, "--launcher_args");
  (void)launcher::choose_hosts(
      launcher::parse_hostfile(bytes.substr(std::min(end + 1, bytes.size())), "hosts"), options);
}

void read_variables(std::string_view bytes) {
  (void)launcher::parse_environment_file(bytes, ".deepspeed_env");
}

void check_message(std::string_view raw, std::string_view bytes) {
  constexpr size_t kMaxBytes = 20'000;
  const std::string shown = printable_message(raw);
  const auto fail = [&](std::string_view what) {
    throw Finding(fmt::format("{}: {}", what, shown.substr(0, 1000)));
  };
  if (shown.empty()) fail("an empty message");
  if (shown.size() > kMaxBytes) fail(fmt::format("a message of {} bytes", shown.size()));
  const auto hidden = [](char byte) {
    return (static_cast<uint8_t>(byte) < 0x20 && byte != '\n') || byte == '\x7f';
  };
  if (std::any_of(shown.begin(), shown.end(), hidden)) fail("a control byte");
  const std::string escaped = printable(bytes);
  for (const std::string_view foreign :
       {"json.exception", "nlohmann", "std::", "basic_string", "vector::", "map::at", "stoi",
        "stod", "syntax error while", "CLI::", "__n (which is", "closing parenthesis",
        "for character class", "repeatable item", "limit exceeded", "Could not convert",
        "TEXT missing", "was not expected"}) {
    // What stands in the file may be quoted, with escapes ("\u007f" before "or"), and a colon put
    // behind it.
    const std::string_view quoted = foreign.substr(0, foreign.find_last_not_of(':') + 1);
    const bool is_quoted = bytes.find(quoted) != bytes.npos || escaped.find(quoted) != escaped.npos;
    if (raw.find(foreign) != raw.npos && !is_quoted) fail("a library's words");
  }
}

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = [] {
    std::vector<Reader> some = {{"json", read_json_text},
                                {"ds_config", read_ds_config},
                                {"model_config", read_model_config},
                                {"safetensors", read_safetensors},
                                {"index", read_index},
                                {"manifest", read_manifest},
                                {"curves", read_curves},
                                {"tokenizer", read_tokenizer},
                                {"chat_template", read_chat_template},
                                {"special_tokens", read_special_tokens},
                                {"jsonl", read_jsonl},
                                {"records", read_records},
                                {"csv", read_csv},
                                {"gzip", read_gzip},
                                {"zstd", read_zstd},
                                {"text", read_text_file},
                                {"bin", read_bin},
                                {"token_index", read_token_index},
                                {"flags", read_flags},
                                {"launch", read_launch},
                                {"hostfile", read_hosts},
                                {"variables", read_variables}};
    if (data::arrow_library()) {
      some.push_back({"parquet", read_parquet});
      some.push_back({"arrow", read_arrow});
    }
    return some;
  }();
  return all;
}

const Reader* find_reader(std::string_view name) {
  const auto found = std::find_if(readers().begin(), readers().end(),
                                  [&](const Reader& reader) { return reader.name == name; });
  return found == readers().end() ? nullptr : &*found;
}

void check(const Reader& reader, std::string_view bytes) {
  try {
    reader.read(bytes);
  } catch (const Error& error) {
    check_message(error.what(), bytes);
  } catch (const Finding&) {
    throw;
  } catch (const std::exception& other) {
    throw Finding(fmt::format("{} by {}: {}", reader.name, typeid(other).name(), other.what()));
  }
}

}  // namespace zeroth::fuzz
