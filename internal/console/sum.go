package console

import "reflect"

// addUp adds the counters of a process to sum: its numbers, also those in structs
// and arrays. A bool of sum is set if it is set in one of the processes. Texts and
// slices of sum stay.
func addUp[T any](sum *T, process T) {
	addValue(reflect.ValueOf(sum).Elem(), reflect.ValueOf(process))
}

// total adds up the counters of the processes that answered, and returns the others.
func total[T any](parts []answer[T]) (sum T, unanswered []answer[T]) {
	for _, p := range parts {
		if p.Err != "" {
			unanswered = append(unanswered, p)
			continue
		}
		addUp(&sum, p.Value)
	}
	return sum, unanswered
}

func addValue(sum, v reflect.Value) {
	switch sum.Kind() {
	case reflect.Struct:
		for i := range sum.NumField() {
			addValue(sum.Field(i), v.Field(i))
		}
	case reflect.Array:
		for i := range sum.Len() {
			addValue(sum.Index(i), v.Index(i))
		}
	case reflect.Int, reflect.Int64:
		sum.SetInt(sum.Int() + v.Int())
	case reflect.Uint64:
		sum.SetUint(sum.Uint() + v.Uint())
	case reflect.Bool:
		sum.SetBool(sum.Bool() || v.Bool())
	}
}
