#include "base/error.h"
#include "comm/group.h"

namespace zeroth::comm {
namespace {

class SoloGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Pending all_reduce(const torch::Tensor&, Reduce, std::string_view) override { return {}; }
  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in, std::string_view) override {
    return copy(out, in);
  }
  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                         std::string_view) override {
    return copy(out, in);
  }
  Pending broadcast(const torch::Tensor&, int, std::string_view) override { return {}; }

 private:
  static Pending copy(const torch::Tensor& out, const torch::Tensor& in) {
    ZEROTH_CHECK(out.numel() == in.numel(), "out {}, in {}", out.numel(), in.numel());
    if (out.data_ptr() != in.data_ptr()) out.copy_(in);
    return {};
  }
};

}  // namespace

std::unique_ptr<Group> make_solo_group() {
  return std::make_unique<SoloGroup>();
}

}  // namespace zeroth::comm
