// Fetches a URL without any proxy; prints the status and the body.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := http.Client{
		Transport: &http.Transport{Proxy: nil},
		Timeout:   20 * time.Second,
	}
	answer, err := client.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode)
	io.Copy(os.Stdout, answer.Body)
}
