// What the page of a run says beside its curves.
#pragma once

#include "monitor/run_page.h"
#include "trainer/environment.h"
#include "trainer/metrics.h"
#include "trainer/run_plan.h"
#include "trainer/summary.h"

namespace zeroth::trainer {

monitor::PageFacts page_facts(const RunPlan& plan, const SummaryLines& summary,
                              TitledLines environment);

monitor::PageStep page_step(const StepRow& row, const device::MemoryUse& memory);

}  // namespace zeroth::trainer
