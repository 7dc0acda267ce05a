package inside_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skep-dev/skep/driver"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("SKEP_FAKE_CLI"); mode != "" {
		fakeCLI(mode)
		return
	}
	os.Exit(m.Run())
}

// fakeCLI is a command-line agent that does what its prompt says: say TEXT, ask, die, flood N, hang. In the mode stubborn it ends by nothing but KILL.
func fakeCLI(mode string) {
	if mode == "stubborn" {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	}
	say := func(kind string, data any) {
		b, _ := json.Marshal(driver.NewEvent("", kind, data))
		fmt.Println(string(b))
	}
	end := func(status, text string) { say(driver.TurnEnded, driver.TurnEnd{Status: status, Text: text}) }
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			Prompt, Answer, Interrupt string
			Allow                     bool
		}
		_ = json.Unmarshal(in.Bytes(), &m)
		word, rest, _ := strings.Cut(m.Prompt, " ")
		switch {
		case m.Interrupt != "" && mode != "stubborn" && mode != "deaf":
			end(driver.TurnInterrupted, "")
		case m.Answer != "":
			say(driver.TextDone, driver.TextData{Text: fmt.Sprint(m.Answer, " ", m.Allow)})
			end(driver.TurnCompleted, "")
		case word == "say":
			say(driver.TextDone, driver.TextData{Text: os.ExpandEnv(rest)})
			end(driver.TurnCompleted, rest)
		case word == "ask":
			say(driver.PermissionAsked, driver.PermissionData{ID: "0", Action: driver.ActionRun})
		case word == "withdraw":
			say(driver.PermissionAsked, driver.PermissionData{ID: "0"})
			say(driver.PermissionWithdrawn, driver.PermissionData{ID: "0"})
		case word == "die":
			fmt.Fprintln(os.Stderr, "it is all over")
			os.Exit(3)
		case word == "raw":
			fmt.Println(rest)
			end(driver.TurnCompleted, "")
		case word == "flood":
			n, _ := strconv.Atoi(rest)
			for i := range n {
				say(driver.ToolStarted, driver.ToolData{ID: strconv.Itoa(i), Name: strings.Repeat("x", 200)})
			}
			end(driver.TurnCompleted, "")
		}
	}
	if mode == "stubborn" || mode == "deaf" {
		select {}
	}
}
