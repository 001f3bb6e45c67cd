// A sample as a person reads it: token by token, and which of them are trained.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace zeroth::data {

class Tokenizer;

// A line that names the sample, and a line for each of its tokens: position, id, whether it is a
// target of the loss, and its text in quotation marks, printable. `tokenizer` may be null: there is
// no text then.
std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer);

}  // namespace zeroth::data
