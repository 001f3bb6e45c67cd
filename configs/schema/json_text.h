// JSON as people and Python write it in a ds_config.json: with //, /**/ and # comments, NaN and
// Infinity. Duplicate keys are reported.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json/json.h"

namespace zeroth::configs {

struct ParsedJson {
  nlohmann::ordered_json root;
  DuplicateKeys duplicate_keys;
};

// Parses a text. Throws an Error "name:line:column: ..." with the JSON path of a syntax error.
ParsedJson parse_json(const std::string& text, const std::string& name);

// Decodes base64 in either alphabet, with or without padding. Returns nullopt if the text is not
// base64.
std::optional<std::string> decode_base64(const std::string& text);

}  // namespace zeroth::configs
