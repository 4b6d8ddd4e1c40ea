// An actuator plugin for Trimtab in Go: brownout, which omits optional parts of pages while latency is missed.
//
//	go run . -register 127.0.0.1:9444 -levels /tmp/brownout
//
// It has three levels. It assumes that each level reduces latency by a quarter. It sets a level by a file per workload
// that the application reads. Setting a level is idempotent, as the protocol requires.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "trimtab.io/examples/plugins/go/pluginpb"
)

const (
	name    = "brownout"
	highest = 3
	saves   = 0.75
)

type plugin struct {
	pb.UnimplementedPluginServer
	pb.UnimplementedActuatorPluginServer
	info   *pb.PluginInfo
	levels string
}

func (p *plugin) Info(context.Context, *pb.InfoRequest) (*pb.PluginInfo, error) { return p.info, nil }

// Candidates proposes one level up while an objective is missed, and one level down to release.
func (p *plugin) Candidates(asked *pb.CandidatesRequest, out grpc.ServerStreamingServer[pb.Action]) error {
	level := levelOf(asked.State)
	next, factor := level+1, saves
	if asked.Goal.IsRelease {
		next, factor = level-1, 1/saves
	}
	if next < 0 || next > highest {
		return nil
	}
	after := proto.Clone(asked.State).(*pb.State)
	for _, objective := range asked.Goal.Objectives {
		if now, known := after.Objectives[objective.Name]; known && objective.Kind == "latency" {
			after.Objectives[objective.Name] = now * factor
		}
	}
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[name] = strconv.Itoa(next)
	parameters, err := structpb.NewStruct(map[string]any{"level": next})
	if err != nil {
		return err
	}
	return out.Send(&pb.Action{Actuator: name, Parameters: parameters, After: after, Disruption: 0.01})
}

// Perform sets a level.
func (p *plugin) Perform(_ context.Context, asked *pb.PerformRequest) (*pb.PerformResponse, error) {
	level := int(asked.Action.Parameters.Fields["level"].GetNumberValue())
	if level < 0 || level > highest {
		return &pb.PerformResponse{BlockedReason: fmt.Sprintf("there is no level %d", level)}, nil
	}
	target := asked.Target
	file := filepath.Join(p.levels, strings.Join([]string{target.Namespace, target.Kind, target.Name}, "_"))
	if err := os.WriteFile(file, []byte(strconv.Itoa(level)), 0o644); err != nil {
		return &pb.PerformResponse{BlockedReason: err.Error()}, nil
	}
	return &pb.PerformResponse{}, nil
}

func (p *plugin) Observe(context.Context, *pb.ObserveRequest) (*pb.ObserveResponse, error) {
	return &pb.ObserveResponse{}, nil
}

func levelOf(state *pb.State) int {
	level, err := strconv.Atoi(state.Annotations[name])
	if err != nil {
		return 0
	}
	return level
}

// register repeats the registration, because another replica of the operator may become the leader.
func register(info *pb.PluginInfo, operator string) {
	channel, err := grpc.NewClient(operator, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	for {
		deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		answer, err := pb.NewRegistrationClient(channel).Register(deadline, info)
		cancel()
		wait := 2 * time.Second
		if err != nil {
			log.Print(err)
		} else {
			wait = time.Duration(answer.RegisterAgainSeconds * float64(time.Second))
		}
		time.Sleep(wait)
	}
}

func main() {
	operator := flag.String("register", "127.0.0.1:9444", "address at which the operator accepts registrations")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	levels := flag.String("levels", ".", "directory of the files that the applications read")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	info := &pb.PluginInfo{
		Type:     pb.PluginType_PLUGIN_TYPE_ACTUATOR,
		Name:     name,
		Endpoint: listener.Addr().String(),
		Versions: []string{"v1"},
		Group:    name,
	}
	server := grpc.NewServer()
	served := &plugin{info: info, levels: *levels}
	pb.RegisterPluginServer(server, served)
	pb.RegisterActuatorPluginServer(server, served)
	go register(info, *operator)
	log.Fatal(server.Serve(listener))
}
