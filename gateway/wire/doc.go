// Package wire is what the protocols of models have in common: a canonical form of requests, answers, streams, usage and faults, and the seam that
// each protocol implements.
//
// A protocol is a Codec. Between two sides of the same protocol nothing is decoded: bytes pass, a Meter reads what the gateway must know, and Patch
// changes the fields that the gateway owns. Between different protocols a request is decoded by the codec of the client and encoded by that of the
// provider, and the answer goes the way back. What one side says and the other has no word for is refused with an error that names the field, or
// left out where that changes nothing that was asked for.
package wire
