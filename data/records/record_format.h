// Formats of records: texts, pairs, chats, token ids, in the shapes that the data sets of other
// tools have. The first record of a file decides the format. Every function throws an Error with
// reason and remedy; the caller adds file and line.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/records/record.h"
#include "data/records/record_fields.h"

namespace zeroth::data {

// A RecordFormat reads the records of one file, all of which have its fields.
class RecordFormat {
 public:
  // Recognizes the format by the first record. `name` selects one of format_names(); if it is
  // empty, the format is the one of the fields named in `fields` (text, prompt with completion, or
  // messages), or else of the fields that the record has. Throws an Error that lists the fields for
  // a record of no format or of preferences, which are not supported, and one for a record that
  // read() refuses.
  static RecordFormat recognize(const nlohmann::ordered_json& first_record, const std::string& name,
                                const RecordFields& fields);

  // Ignores the fields that the format does not read.
  Record read(const nlohmann::ordered_json& record) const;

  const std::string& name() const { return name_; }
  // Returns the names of the fields that are read; the others are empty. The separator is set for a
  // pair of texts.
  const RecordFields& fields() const { return fields_; }
  // Returns a line for the run's output, such as "sharegpt (from, value) in 'conversations'". It
  // lists the fields that hold a text in other formats and are not read.
  const std::string& description() const { return description_; }

 private:
  using Reader = Record (*)(const nlohmann::ordered_json& record, const RecordFields& fields);

  std::string name_;
  RecordFields fields_;
  std::string description_;
  Reader reader_ = nullptr;
};

// Returns the names of all formats: "text, prompt-completion, ...".
std::string format_names();

// A DatasetInfo is an entry of LLaMA-Factory's dataset_info.json. The last two are for recognize().
struct DatasetInfo {
  std::string file_name = {};  // relative to the folder of dataset_info.json
  std::string format = {};
  RecordFields fields = {};
};

// Returns the entry `name`. As in LLaMA-Factory, its "columns" reset all columns that they do not
// name. Throws an Error for an entry without a file, and for one that needs what is not supported.
DatasetInfo find_dataset_info(const nlohmann::ordered_json& info, const std::string& name);

// Reads the file, and returns its entry.
DatasetInfo read_dataset_info(const std::filesystem::path& path, const std::string& name);

}  // namespace zeroth::data
