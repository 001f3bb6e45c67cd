// Description of a sample for a user: token by token, with its labels.
#pragma once

#include <cstdint>
#include <string>

#include "data/samples/dataset.h"

namespace zeroth::data {

class Tokenizer;

// Returns a line that names the sample, and a line for each of its tokens: position, id, whether it
// is a label, and its text in quotation marks, printable. `tokenizer` may be null: there is no text
// then.
std::string describe_sample(const Dataset& dataset, int64_t index, const Tokenizer* tokenizer);

}  // namespace zeroth::data
