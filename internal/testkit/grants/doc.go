// Package grants holds the tests of the rules W1, W4, W7 and W10 with processes:
// no interval has more units than a rate allows while clients, whose wall clocks
// are an hour apart, are killed, the backend restarts, and its clock steps; and no
// unit is lost.
//
// Each client writes down what it was granted, in a file that survives its end.
// After the run, all files are judged together, interval by interval.
package grants
