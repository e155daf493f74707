// Command bench measures.
package main

func main() {}
