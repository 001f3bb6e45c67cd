#include "launcher/commands/export_model.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json/json.h"
#include "base/tensor_slice.h"
#include "base/text/diagnostics.h"
#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "checkpoint/find.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "launcher/commands/atomic_directory.h"
#include "launcher/commands/commands.h"

namespace zeroth::launcher {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::StoredFile;
using checkpoint::StoredState;
using Json = nlohmann::ordered_json;

constexpr int64_t kChunkElements = int64_t{1} << 18;     // elements in memory at a time
constexpr int64_t kMaxCopiedBytes = int64_t{256} << 20;  // bytes of a file beside the weights
constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kAdapterConfig = "adapter_config.json";
constexpr std::string_view kAdapterTensors = "base_model.model.";  // begin of their names

// ExportShard is one file of weights with its tensors.
struct ExportShard {
  std::string name;
  std::vector<StoredState> tensors;
  int64_t bytes = 0;
};

// Returns whether the file belongs to the model, except weights and training results.
bool is_copied(const StoredFile& file) {
  const std::string& name = file.name;
  return file.chunks.empty() && name.find('/') == name.npos && !name.ends_with(".safetensors") &&
         !name.ends_with(".index.json") && !name.ends_with(".bin") &&
         name != "trainer_state.json" && !name.ends_with("_results.json") &&
         !name.ends_with(".html");
}

// Returns the master weights of trained tensors, and the weights of frozen ones.
std::vector<StoredState> list_tensors(const CheckpointReader& reader) {
  std::map<std::string, StoredState> found;
  for (const StoredState& state : reader.states()) {
    StoredState& tensor = found[state.tensor];
    if (state.state == "master" || (state.state == "weight" && tensor.state != "master")) {
      tensor = state;
    }
  }
  std::vector<StoredState> tensors;
  for (const auto& [name, tensor] : found) {
    const std::string where = fmt::format("{}: {}", reader.path().string(), shortened(name));
    if (tensor.state.empty()) throw Error("{} has neither master nor weight", where);
    if (!parse_dtype(tensor.dtype)) {
      throw Error("{} is {}, expected F32, BF16 or F16", where, shortened(tensor.dtype));
    }
    if (name == "__metadata__") throw Error("{} is not a tensor name", where);
    tensors.push_back(tensor);
  }
  if (tensors.empty()) {
    throw Error("{} contains no states: if it is a model, transformers can load it as it is",
                reader.path().string());
  }
  return tensors;
}

int64_t num_bytes(const StoredState& tensor, Dtype dtype) {
  const auto element_bytes = static_cast<int64_t>(dtype_info(dtype).element_bytes);
  return TensorSlice::full(tensor.shape).elements() * element_bytes;
}

// Returns whether the tensors are an adapter, which peft reads from one file.
bool is_adapter(const std::vector<StoredState>& tensors) {
  return std::ranges::all_of(tensors, [](const StoredState& tensor) {
    return tensor.tensor.starts_with(kAdapterTensors);
  });
}

std::vector<ExportShard> split_shards(const std::vector<StoredState>& tensors,
                                      const ExportRequest& request) {
  std::vector<ExportShard> shards(1);
  const bool adapter = is_adapter(tensors);
  for (const StoredState& tensor : tensors) {
    const int64_t bytes = num_bytes(tensor, request.dtype);
    if (!adapter && shards.back().bytes > 0 &&
        shards.back().bytes + bytes > request.max_shard_bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(tensor);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = adapter ? "adapter_model.safetensors"
                     : shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// Returns the header of a safetensors file, preceded by its length.
std::string safetensors_header(const ExportShard& shard, Dtype dtype) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const StoredState& tensor : shard.tensors) {
    const int64_t end = offset + num_bytes(tensor, dtype);
    header[tensor.tensor] = {{"dtype", dtype_info(dtype).safetensors},
                             {"shape", tensor.shape},
                             {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

[[noreturn]] void throw_not_representable(const StoredState& tensor, float value, Dtype dtype) {
  if (!std::isfinite(value)) {
    throw Error("{} holds {}: such a model is not exported", shortened(tensor.tensor),
                canonicalize_nan(value));
  }
  throw Error("{} has a value of {:g}, out of range for {}: export in {}", shortened(tensor.tensor),
              value, dtype_info(dtype).flag, dtype == Dtype::kF16 ? "bf16 or fp32" : "fp32");
}

// Reads, rounds and writes one chunk at a time.
void write_shard(const ExportShard& shard, CheckpointReader& reader, AtomicDirectory& directory,
                 Dtype dtype) {
  const std::string header = safetensors_header(shard, dtype);
  int64_t offset = std::ssize(header);
  const auto file =
      directory.file_system().create(directory.file_path(shard.name), offset + shard.bytes);
  checkpoint::write_all(*file, std::as_bytes(std::span(header)), 0);
  std::vector<std::byte> stored, rounded;
  for (const StoredState& tensor : shard.tensors) {
    const Dtype stored_dtype = *parse_dtype(tensor.dtype);
    const auto slice = TensorSlice::full(tensor.shape);
    const int64_t elements = slice.elements();
    for (int64_t at = 0; at < elements; at += kChunkElements) {
      const checkpoint::ElementRange range{at, std::min(elements, at + kChunkElements)};
      const auto count = static_cast<size_t>(range.elements());
      stored.resize(count * dtype_info(stored_dtype).element_bytes);
      rounded.resize(count * dtype_info(dtype).element_bytes);
      reader.read(tensor.tensor, tensor.state, slice, range, stored);
      if (const auto bad = convert(stored, stored_dtype, rounded, dtype))
        throw_not_representable(tensor, *bad, dtype);
      checkpoint::write_all(*file, rounded, offset);
      offset += std::ssize(rounded);
    }
  }
  file->sync();
  file->close();
}

void write_index(const std::vector<ExportShard>& shards, int64_t total_bytes,
                 AtomicDirectory& directory) {
  Json index;
  index["metadata"]["total_size"] = total_bytes;
  for (const ExportShard& shard : shards) {
    for (const StoredState& tensor : shard.tensors) index["weight_map"][tensor.tensor] = shard.name;
  }
  write_text(directory.file_system(), directory.file_path("model.safetensors.index.json"),
             index.dump(2) + "\n");
}

std::string with_config_dtype(const std::string& config, const std::string& path, Dtype dtype) {
  Json tree = parse_ordered_json(config, {.name = path, .limits = kConfigLimits});
  if (!tree.is_object()) throw Error("{} is not a JSON object", path);
  if (tree.contains("text_config")) {
    throw Error(
        "{}: the checkpoint's states are those of the language model alone. The checkpoint's "
        "folder is the whole model: transformers can load it as it is",
        path);
  }
  const std::string_view name = dtype_info(dtype).config;
  tree[tree.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  if (tree.contains("torch_dtype")) tree["torch_dtype"] = name;
  return tree.dump(2) + "\n";
}

std::vector<std::string> copy_files(CheckpointReader& reader, AtomicDirectory& directory,
                                    Dtype dtype) {
  std::vector<std::string> copied;
  for (const StoredFile& file : reader.manifest().files) {
    if (!is_copied(file)) continue;
    std::string text = reader.read_text(file.name, kMaxCopiedBytes);
    if (file.name == kConfig)
      text = with_config_dtype(text, (reader.path() / file.name).string(), dtype);
    write_text(directory.file_system(), directory.file_path(file.name), text);
    copied.push_back(file.name);
  }
  return copied;
}

ExportResult export_one(CheckpointReader reader, const ExportRequest& request) {
  // Check first: a forged manifest's tensor size would be written before a missing chunk is
  // detected.
  const auto errors = checkpoint::coverage_errors(reader.manifest().files);
  if (!errors.empty()) {
    throw Error("{} is damaged: {}", reader.path().string(), listed(errors));
  }
  const auto tensors = list_tensors(reader);
  const auto shards = split_shards(tensors, request);
  AtomicDirectory directory(request.to, request.overwrite);
  ExportResult exported{
      .from = reader.path(), .to = directory.target(), .tensors = std::ssize(tensors)};
  exported.copied = copy_files(reader, directory, request.dtype);
  for (const ExportShard& shard : shards) {
    write_shard(shard, reader, directory, request.dtype);
    exported.bytes += shard.bytes;
  }
  if (shards.size() > 1) write_index(shards, exported.bytes, directory);
  directory.commit();
  return exported;
}

constexpr const char* kHelp = R"(
DIR: an --output or its folder checkpoints, whose newest complete one is used, or one checkpoint.
OUT: the model's folder: the trained weights, rounded to --dtype; config.json, tokenizer and similar
files as in the checkpoint. It is written atomically. The checkpoint of a run with adapters gives
the adapter's folder, which peft loads, or with --merge the model of base and adapter.
)";

std::string describe_result(const ExportResult& exported) {
  std::string text = fmt::format("{}: {} of {}, from {}\n", exported.to.string(),
                                 pluralize(exported.tensors, "tensor"),
                                 format_bytes(exported.bytes), exported.from.string());
  const auto& copied = exported.copied;
  if (!copied.empty()) text += fmt::format("  with {}\n", fmt::join(copied, ", "));
  const auto has = [&](std::string_view file) {
    return std::ranges::find(copied, file) != copied.end();
  };
  if (!has(kConfig) && !has(kAdapterConfig))
    text += "  without config.json, which the checkpoint does not have: only the weights\n";
  return printable_message(text);
}

// Throws UsageError if `path` has the name of a file. Examples of DeepSpeed's zero_to_fp32.py pass
// a file name; transformers would not find the model in a directory of that name.
void require_directory_name(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();
  constexpr std::string_view kWeights[] = {".bin", ".safetensors", ".pt", ".pth", ".ckpt"};
  const std::string suffix = path.extension().string();
  if (std::ranges::find(kWeights, suffix) == std::end(kWeights)) return;
  const std::string parent = path.parent_path().string();
  throw UsageError(
      "export: OUT {} is named like a weights file, but OUT is the model's folder, in which "
      "model.safetensors and config.json are written: give a folder instead, for example {}",
      shortened(path.string()), parent.empty() ? "hf" : shortened(parent));
}

}  // namespace

ExportResult export_model(const ExportRequest& request) {
  const checkpoint::CheckpointLocation place = checkpoint::locate(request.from);
  if (!place.file_system) throw Error("{}: there is no such folder", request.from.string());
  ExportResult exported;
  checkpoint::with_selected_checkpoint(place, [&](const std::string& name) {
    exported = export_one(CheckpointReader(place.file_system, name), request);
  });
  return exported;
}

namespace {

// The command line of `zeroth export`.
struct ExportWords {
  ExportRequest request;
  std::string dtype = "fp32";
  bool merge = false;
  std::string base;
  std::string help;  // not empty: it was asked for
};

ExportWords parse_export(const std::vector<std::string>& words) {
  ExportWords parsed;
  std::string from, to;
  CLI::App app("Exports the model of a checkpoint in the format of transformers. Starts nothing.",
               "zeroth export");
  app.add_option("DIR", from, "Folder of the checkpoint")->required();
  app.add_option("OUT", to, "The model's folder: new or empty")->required();
  app.add_option("--dtype", parsed.dtype, "fp32 (default), bf16 or fp16")->option_text("DTYPE");
  app.add_flag("--overwrite", parsed.request.overwrite, "Replace the model in OUT");
  app.add_flag("--merge", parsed.merge, "Write the base with the checkpoint's adapter merged in");
  app.add_option("--base", parsed.base, "The base (default: that of adapter_config.json)")
      ->option_text("MODEL");
  parsed.help = parse_subcommand(app, words);
  if (!parsed.help.empty()) {
    parsed.help += kHelp;
    return parsed;
  }
  const auto found = std::ranges::find(kDtypes, parsed.dtype, &DtypeInfo::flag);
  if (found == std::end(kDtypes))
    throw UsageError("export: --dtype {}: must be fp32, bf16 or fp16", shortened(parsed.dtype));
  if (!parsed.base.empty() && !parsed.merge)
    throw UsageError("export: --base {}: no effect without --merge", shortened(parsed.base));
  parsed.request.dtype = found->dtype;
  require_directory_name(to);
  parsed.request.from = from;
  parsed.request.to = to;
  return parsed;
}

// Returns the base that the adapter of a checkpoint names.
std::string base_of_adapter(CheckpointReader& reader) {
  const std::string path = (reader.path() / kAdapterConfig).string();
  const auto& files = reader.manifest().files;
  if (std::ranges::find(files, kAdapterConfig, &StoredFile::name) == files.end())
    throw Error("export: --merge: {} holds no adapter", reader.path().string());
  const Json config =
      parse_ordered_json(reader.read_text(std::string(kAdapterConfig), kMaxCopiedBytes),
                         {.name = path, .limits = kConfigLimits});
  constexpr const char* kBase = "base_model_name_or_path";
  if (config.is_object() && config.contains(kBase) && config[kBase].is_string())
    return config[kBase].get<std::string>();
  throw Error("export: --merge: {} names no base: give --base MODEL", path);
}

}  // namespace

std::vector<std::string> export_merge_arguments(const std::vector<std::string>& words) {
  const ExportWords parsed = parse_export(words);
  if (!parsed.help.empty() || !parsed.merge) return {};
  const checkpoint::CheckpointLocation place = checkpoint::locate(parsed.request.from);
  if (!place.file_system) throw Error("{}: there is no such folder", parsed.request.from.string());
  std::vector<std::string> arguments;
  checkpoint::with_selected_checkpoint(place, [&](const std::string& name) {
    CheckpointReader reader(place.file_system, name);
    const std::string named = base_of_adapter(reader);
    arguments = {"--merge",
                 "--model",
                 parsed.base.empty() ? named : parsed.base,
                 "--adapter",
                 reader.path().string(),
                 "--output",
                 parsed.request.to.string(),
                 "--save-dtype",
                 parsed.dtype};
  });
  if (parsed.request.overwrite) arguments.emplace_back("--overwrite");
  return arguments;
}

std::string export_command(const std::vector<std::string>& words) {
  const ExportWords parsed = parse_export(words);
  return parsed.help.empty() ? describe_result(export_model(parsed.request)) : parsed.help;
}

}  // namespace zeroth::launcher
