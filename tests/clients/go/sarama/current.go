//go:build current

package main

// Keeps the version of the current Sarama in go.mod; tests/clients/programs.py builds this program with it, too.
import _ "github.com/IBM/sarama"
