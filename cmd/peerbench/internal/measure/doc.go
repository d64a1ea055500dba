// Package measure runs loads in turn and times what they do.
//
// Loads that are compared run in the same rounds, one after the other, and in the opposite order in
// every second round. What disturbs a machine for a while then disturbs all of them, and a median
// over the rounds leaves it out.
package measure
