#include "launcher/commands/export_command.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/text/flag_errors.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "base/usage_error.h"
#include "launcher/commands/export_model.h"

namespace zeroth::launcher {
namespace {

constexpr const char* kHelp = R"(
DIR: an --output or its folder checkpoints, whose newest complete one is used, or one checkpoint.
OUT: the model's folder: the trained weights, rounded to --dtype; config.json, tokenizer and similar
files as in the checkpoint. It is written atomically.
)";

std::string describe_result(const ExportResult& exported) {
  std::string text = fmt::format("{}: {} of {}, from {}\n", exported.to.string(),
                                 pluralize(exported.tensors, "tensor"),
                                 format_bytes(exported.bytes), exported.from.string());
  if (!exported.copied.empty()) {
    text += fmt::format("  with {}\n", fmt::join(exported.copied, ", "));
  }
  const auto& copied = exported.copied;
  if (std::find(copied.begin(), copied.end(), "config.json") == copied.end()) {
    text += "  without config.json, which the checkpoint does not have: only the weights\n";
  }
  return printable_message(text);
}

// Throws UsageError if `path` has the name of a file. Examples of DeepSpeed's zero_to_fp32.py pass
// a file name; transformers would not find the model in a directory of that name.
void require_directory_name(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();
  constexpr std::string_view kWeights[] = {".bin", ".safetensors", ".pt", ".pth", ".ckpt"};
  const std::string suffix = path.extension().string();
  if (std::find(std::begin(kWeights), std::end(kWeights), suffix) == std::end(kWeights)) return;
  const std::string parent = path.parent_path().string();
  throw UsageError(
      "export: OUT {} is named like a weights file, but OUT is the model's folder, in which "
      "model.safetensors and config.json are written: give a folder instead, for example {}",
      shortened(path.string()), parent.empty() ? "hf" : shortened(parent));
}

}  // namespace

std::string export_command(const std::vector<std::string>& words) {
  const std::map<std::string, Dtype> kDtypes = {
      {"fp32", Dtype::kF32}, {"bf16", Dtype::kBf16}, {"fp16", Dtype::kF16}};
  std::string from, to, dtype = "fp32";
  ExportRequest request;
  CLI::App app("Exports the model of a checkpoint in the format of transformers. Starts nothing.",
               "zeroth export");
  app.add_option("DIR", from, "Folder of the checkpoint")->required();
  app.add_option("OUT", to, "The model's folder: new or empty")->required();
  app.add_option("--dtype", dtype, "fp32 (default), bf16 or fp16")->option_text("DTYPE");
  app.add_flag("--overwrite", request.overwrite, "Replace the model in OUT");
  if (const std::string help = parse_subcommand(app, words); !help.empty()) return help + kHelp;
  const auto found = kDtypes.find(dtype);
  if (found == kDtypes.end()) {
    throw UsageError("export: --dtype {}: must be fp32, bf16 or fp16", shortened(dtype));
  }
  request.dtype = found->second;
  require_directory_name(to);
  request.from = from;
  request.to = to;
  return describe_result(export_model(request));
}

}  // namespace zeroth::launcher
