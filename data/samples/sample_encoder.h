// SampleEncoder: the ids of a record of any form, and which of them are trained.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/records/record.h"
#include "data/samples/chat_encoder.h"
#include "data/samples/dataset.h"
#include "data/samples/special_tokens.h"

namespace zeroth::data {

class SampleEncoder {
 public:
  // Keeps a reference to the options. Throws an Error if they have no tokenizer, or if its end of
  // text is not known.
  explicit SampleEncoder(const DatasetOptions& options);

  // Returns the ids with the tokens that begin and end a text, and for a chat those of the template
  // alone. Throws an Error for an id that the model does not have, and for a chat if the model has
  // no template or the template refuses it.
  TokenRecord encode(Record record);

  // Adds what another one, of the same options, has counted.
  void add_counts(const SampleEncoder& other);

  // Stores what is known after all records.
  void store_counts(RecordFacts& facts) const;

 private:
  TokenRecord encode_text(TextRecord record);
  TokenRecord encode_chat(ChatRecord& record);
  ChatEncoder& chat_encoder();

  const DatasetOptions& options_;
  std::optional<SpecialTokens> special_tokens_;
  std::unique_ptr<ChatEncoder> chat_encoder_;  // once there is a chat
  std::string chat_rule_;                      // what decides the ids of a chat
  int64_t joined_parts_ = 0;
  int64_t merged_boundaries_ = 0;
  ChatEncoder::Counts other_counts_;  // of add_counts()
};

}  // namespace zeroth::data
