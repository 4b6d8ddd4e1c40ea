// vpa is the Kubernetes VPA recommender without its cluster: its own model and logic packages behind pipes, so that
// tests can hold our strategy against the one that it follows, and benchmarks can stand beside it.
//
//	vpa series    one series a line on stdin, one JSON object a question on stdout
//	vpa bench     CONTAINERS STEPS STEP_SECONDS; on stdin the samples, what it took as JSON on stdout
//
// A series is {"pod": 1, "events": [{"t": 60, "cpu": 0.1, "memory": 1e8}, {"t": 61, "oom": 2e8}, {"t": 62, "ask": true}]}
// where pod is the number of containers that the floors are divided by. An answer holds millicores and bytes as
// [lower, target, upper], and the checkpoint that the recommender would write.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

type event struct {
	T      float64
	CPU    *float64
	Memory *float64
	OOM    *float64
	Ask    bool
	Load   *vpa_types.VerticalPodAutoscalerCheckpointStatus
}

type series struct {
	Pod    int
	Events []event
}

type answer struct {
	CPU        [3]model.ResourceAmount                          `json:"cpu"`
	Memory     [3]model.ResourceAmount                          `json:"memory"`
	Checkpoint *vpa_types.VerticalPodAutoscalerCheckpointStatus `json:"checkpoint"`
}

func recommender() logic.PodResourceRecommender {
	c := config.DefaultRecommenderConfig()
	return logic.CreatePodResourceRecommender(logic.RecommendationConfig{
		SafetyMarginFraction:       c.SafetyMarginFraction,
		PodMinCPUMillicores:        c.PodMinCPUMillicores,
		PodMinMemoryMb:             c.PodMinMemoryMb,
		TargetCPUPercentile:        c.TargetCPUPercentile,
		LowerBoundCPUPercentile:    c.LowerBoundCPUPercentile,
		UpperBoundCPUPercentile:    c.UpperBoundCPUPercentile,
		ConfidenceIntervalCPU:      c.ConfidenceIntervalCPU,
		TargetMemoryPercentile:     c.TargetMemoryPercentile,
		LowerBoundMemoryPercentile: c.LowerBoundMemoryPercentile,
		UpperBoundMemoryPercentile: c.UpperBoundMemoryPercentile,
		ConfidenceIntervalMemory:   c.ConfidenceIntervalMemory,
	})
}

// container is what the recommender keeps of one, without the maps that lead to it.
type container struct {
	state     *model.ContainerState
	aggregate *model.AggregateContainerState
}

func newContainer() container {
	aggregate := model.NewAggregateContainerState()
	return container{model.NewContainerState(nil, aggregate), aggregate}
}

func moment(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

func (c container) observe(at time.Time, cores, bytes float64) {
	c.state.AddSample(&model.ContainerUsageSample{
		MeasureStart: at, Usage: model.CPUAmountFromCores(cores), Resource: model.ResourceCPU})
	c.state.AddSample(&model.ContainerUsageSample{
		MeasureStart: at, Usage: model.MemoryAmountFromBytes(bytes), Resource: model.ResourceMemory})
}

func (c container) take(e event) {
	at := moment(e.T)
	if e.CPU != nil {
		c.state.AddSample(&model.ContainerUsageSample{
			MeasureStart: at, Usage: model.CPUAmountFromCores(*e.CPU), Resource: model.ResourceCPU})
	}
	if e.Memory != nil {
		c.state.AddSample(&model.ContainerUsageSample{
			MeasureStart: at, Usage: model.MemoryAmountFromBytes(*e.Memory), Resource: model.ResourceMemory})
	}
	if e.OOM != nil {
		// An OOM that is too old is refused; that is an answer too.
		_ = c.state.RecordOOM(at, model.MemoryAmountFromBytes(*e.OOM))
	}
	if e.Load != nil {
		if err := c.aggregate.LoadFromCheckpoint(e.Load); err != nil {
			log.Fatal(err)
		}
	}
}

func (c container) answer(from logic.PodResourceRecommender, pod int) answer {
	states := model.ContainerNameToAggregateStateMap{"": c.aggregate}
	for other := 1; other < pod; other++ {
		states[strconv.Itoa(other)] = model.NewAggregateContainerState()
	}
	sizes := from.GetRecommendedPodResources(states)[""]
	of := func(name model.ResourceName) [3]model.ResourceAmount {
		return [3]model.ResourceAmount{sizes.LowerBound[name], sizes.Target[name], sizes.UpperBound[name]}
	}
	checkpoint, err := c.aggregate.SaveToCheckpoint()
	if err != nil {
		log.Fatal(err)
	}
	return answer{of(model.ResourceCPU), of(model.ResourceMemory), checkpoint}
}

func answerSeries() {
	questions, answers := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	defer answers.Flush()
	from, encode := recommender(), json.NewEncoder(answers)
	for {
		asked := series{Pod: 1}
		if err := questions.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		c := newContainer()
		for _, e := range asked.Events {
			c.take(e)
			if e.Ask {
				if err := encode.Encode(c.answer(from, asked.Pod)); err != nil {
					log.Fatal(err)
				}
			}
		}
	}
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func heap() uint64 {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

func number(argument int) int {
	value, err := strconv.Atoi(os.Args[argument])
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// bench is fed by steps: the cores of all containers, then their bytes, as little-endian doubles.
func bench(count, steps, stepSeconds int) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	usage := make([]float64, 2*count)
	raw := make([]byte, 16*count)
	before := heap()
	containers := make([]container, count)
	for i := range containers {
		containers[i] = newContainer()
	}
	var observing time.Duration
	for step := range steps {
		if _, err := io.ReadFull(in, raw); err != nil {
			log.Fatal(err)
		}
		for i := range usage {
			usage[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		at := time.Unix(int64(step*stepSeconds), 0)
		started := cpuTime()
		for i := range containers {
			containers[i].observe(at, usage[i], usage[count+i])
		}
		observing += cpuTime() - started
	}
	bytes := heap() - before
	from := recommender()
	var total model.ResourceAmount
	started := cpuTime()
	for i := range containers {
		states := model.ContainerNameToAggregateStateMap{"": containers[i].aggregate}
		total += from.GetRecommendedPodResources(states)[""].Target[model.ResourceCPU]
	}
	recommending := cpuTime() - started
	result := map[string]any{
		"containers":        count,
		"observe_seconds":   observing.Seconds(),
		"recommend_seconds": recommending.Seconds(),
		"bytes":             bytes,
		"target_millicores": total,
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
	runtime.KeepAlive(containers)
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "series":
		answerSeries()
	case len(os.Args) == 5 && os.Args[1] == "bench":
		bench(number(2), number(3), number(4))
	default:
		log.Fatal("usage: vpa series | vpa bench CONTAINERS STEPS STEP_SECONDS")
	}
}
