// Normalizer: applies tokenizer.json's `normalizer` to a text before it is split into words.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_view.h"

namespace zeroth::data {

class Normalizer {
 public:
  // `normalizer` may be null. Throws an Error that names an unsupported type, or the wrong key.
  explicit Normalizer(const nlohmann::json& normalizer);

  // Returns the normalized text; `text` must be valid UTF-8. Throws an Error if the text exceeds
  // max_output_bytes().
  std::string run(std::string_view text) const;

  // Returns whether a step may remove the beginning of a text.
  bool strips_beginning() const { return strips_beginning_; }

 private:
  using Step = std::function<std::string(std::string)>;

  void add(const JsonView& part);
  Step make_step(const std::string& type, const JsonView& part);
  Step make_strip(const JsonView& part);

  std::vector<Step> steps_;
  bool strips_beginning_ = false;
};

}  // namespace zeroth::data
