// The commands of `zeroth` that start nothing and read the arguments that follow their names. Each
// throws UsageError if the arguments are invalid.
#pragma once

#include <string>
#include <vector>

namespace zeroth::launcher {

struct CommandResult {
  std::string text;  // to be printed
  int status = 0;
};

// `zeroth check-config FILE [--ranks N] [--strict] [--accept-uncompressed]` explains a
// ds_config.json key by key. The status is 2 if a run would reject the file. Throws UsageError also
// if the file cannot be read or is not JSON.
CommandResult check_config(const std::vector<std::string>& arguments);

// `zeroth checkpoint list|show|verify|prune DIR` lists, shows, verifies or removes the checkpoints
// of a directory. The status is 1 if a checkpoint is incomplete or damaged. Throws Error if the
// directory is missing or has no checkpoint of the requested kind.
CommandResult checkpoint_command(const std::vector<std::string>& arguments);

// `zeroth export DIR OUT` exports a model from a checkpoint. Returns the text to print. Throws
// Error as export_model().
std::string export_command(const std::vector<std::string>& arguments);
// Returns the arguments of `finetune` for `zeroth export DIR OUT --merge [--base MODEL]`, which
// writes the base with the adapter of the checkpoint merged in; empty without --merge. Throws Error
// if the checkpoint holds no adapter.
std::vector<std::string> export_merge_arguments(const std::vector<std::string>& arguments);

// The commands that show or write the tokens of data, or merge an adapter, run `finetune`:
//   zeroth inspect-data --model DIR --data FILE [--count N] [--json] [FLAGS]
//   zeroth tokenize --model DIR --data FILE --output PREFIX [FLAGS]
//   zeroth merge BASE ADAPTER OUT [FLAGS]
// Return its arguments; without any, or for --help, an empty list: see data_command_help(). merge
// throws UsageError if one of the three is missing.
std::vector<std::string> inspect_data_arguments(const std::vector<std::string>& arguments);
std::vector<std::string> tokenize_arguments(const std::vector<std::string>& arguments);
std::vector<std::string> merge_arguments(const std::vector<std::string>& arguments);
std::string data_command_help();

}  // namespace zeroth::launcher
