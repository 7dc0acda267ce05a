package api

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
)

// guard stands before every route. It answers browsers' questions about other origins (CORS), and on a loopback address
// it refuses foreign Host names: a web page could otherwise make its own name resolve to this machine (DNS rebinding).
func (s *Server) guard(loopback bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if loopback && !s.hostAllowed(string(c.Request().Host())) {
			return &agent.Error{
				Kind: agent.Denied, Msg: "this server does not answer to that Host name",
				Hint: "use 127.0.0.1 or localhost, or name the host in the server's options",
			}
		}
		if len(s.o.Origins) == 0 {
			return c.Next()
		}
		c.Vary("Origin")
		origin := c.Get("Origin")
		if !slices.Contains(s.o.Origins, origin) {
			return c.Next()
		}
		c.Set("Access-Control-Allow-Origin", origin)
		c.Set("Access-Control-Expose-Headers", "*")
		if c.Method() != http.MethodOptions || c.Get("Access-Control-Request-Method") == "" {
			return c.Next()
		}
		c.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
		c.Set("Access-Control-Allow-Headers", c.Get("Access-Control-Request-Headers"))
		c.Set("Access-Control-Max-Age", "600")
		return c.SendStatus(http.StatusNoContent)
	}
}

func (s *Server) hostAllowed(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.Trim(strings.ToLower(strings.TrimSuffix(host, ".")), "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(s.o.Hosts, host) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}
