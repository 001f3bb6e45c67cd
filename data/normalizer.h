// What tokenizer.json's `normalizer` does to a text before it is cut into words.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_view.h"

namespace zeroth::data {

class Normalizer {
 public:
  // `normalizer` may be null. Throws Error naming a type that is not supported, or the key that is
  // wrong.
  explicit Normalizer(const nlohmann::json& normalizer);

  // Of valid UTF-8. Throws Error if a text grows beyond all measure.
  std::string run(std::string_view text) const;

  // Whether it may take something off the beginning of a text.
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
