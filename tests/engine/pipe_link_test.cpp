#include "engine/step/pipe_link.h"

#include <doctest/doctest.h>

#include <string>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::pipe_link_test {
namespace {

using Schedule = configs::PipelineConfig::Schedule;

const PipelinePartition kTwo = {.schedule = Schedule::k1F1B, .ranks = 2, .ends = {1, 2}};

void on_stages(const std::function<void(const comm::DeviceMesh&, PipeLink&)>& fn) {
  testing::run_ranks(2,
                     [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
                       PipeLink link(*mesh, kTwo, {"first", "second"});
                       fn(*mesh, link);
                     },
                     {.grid = comm::MeshShape().with(comm::MeshDim::kPp, 2)});
}

PipeOp forward(int64_t micro_batch) {
  return {PipeOpKind::kForward, micro_batch, 0};
}
PipeOp backward(int64_t micro_batch) {
  return {PipeOpKind::kBackward, micro_batch, 0};
}

}  // namespace

TEST_CASE("activations and gradients cross with the extents of their micro-batch") {
  on_stages([](const comm::DeviceMesh& mesh, PipeLink& link) {
    const auto value = [](int64_t micro_batch) {
      return torch::full({micro_batch + 1, 3, 2}, static_cast<double>(micro_batch));
    };
    link.begin(Schedule::k1F1B, 3, /*trains=*/true, 0, [](int64_t micro_batch) {
      return std::vector<int64_t>{micro_batch + 1, 3};
    });
    for (int64_t i = 0; i < 3; ++i) {
      if (mesh.rank() == 0) {
        CHECK_FALSE(link.send_output(forward(i), value(i)).defined());
        CHECK(at::equal(link.receive_gradient(backward(i), {}), 2 * value(i)));
        CHECK_FALSE(link.send_gradient(backward(i), {}).defined());  // nothing comes before
      } else {
        CHECK(at::equal(link.receive_input(forward(i), {}), value(i)));
        CHECK(at::equal(link.send_output(forward(i), value(i)), value(i)));  // nothing follows
        link.send_gradient(backward(i), 2 * value(i));
      }
    }
    link.finish();
  });
}

TEST_CASE("a gradient that nothing gives is zero on the other rank") {
  on_stages([](const comm::DeviceMesh& mesh, PipeLink& link) {
    link.begin(Schedule::k1F1B, 1, /*trains=*/true, 0, [](int64_t) {
      return std::vector<int64_t>{2, 3};
    });
    const torch::Tensor x = torch::ones({2, 3, 4}, torch::kBFloat16);
    if (mesh.rank() == 0) {
      link.send_output(forward(0), x);
      CHECK(at::equal(link.receive_gradient(backward(0), {}), at::zeros_like(x)));
    } else {
      CHECK(at::equal(link.receive_input(forward(0), {}), x));
      link.send_gradient(backward(0), {});
    }
    link.finish();
  });
}

TEST_CASE("no gradient crosses to blocks that are not trained") {
  on_stages([](const comm::DeviceMesh& mesh, PipeLink& link) {
    link.begin(Schedule::k1F1B, 1, /*trains=*/true, /*trained_from=*/1, [](int64_t) {
      return std::vector<int64_t>{2, 3};
    });
    if (mesh.rank() == 0) {
      link.send_output(forward(0), torch::ones({2, 3, 4}));
    } else {
      link.receive_input(forward(0), {});
      CHECK(link.send_gradient(backward(0), torch::ones({2, 3, 4})).defined());
    }
    link.finish();
  });
}

TEST_CASE("an activation of another form than the first one is an error") {
  on_stages([](const comm::DeviceMesh& mesh, PipeLink& link) {
    link.begin(Schedule::kGPipe, 2, /*trains=*/true, 0, [](int64_t) {
      return std::vector<int64_t>{2, 3};
    });
    if (mesh.rank() == 0) {
      link.send_output(forward(0), torch::ones({2, 3, 4}));
      CHECK_THROWS_WITH_AS(link.send_output(forward(1), torch::ones({2, 3, 5})),
                           "pipeline: the activation of micro-batch 1 that crosses to another rank "
                           "is [2, 3, 5] of Float, after the first one [2, 3, 4] of Float is "
                           "expected",
                           Error);
    } else {
      link.receive_input(forward(0), {});
    }
  });
}

}  // namespace zeroth::engine::pipe_link_test
