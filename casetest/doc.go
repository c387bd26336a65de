// Package casetest holds a test for each bug that was reported from the field against other libraries that do this job,
// and for the whole kind of fault it shows. It has no other code. README.md is the index.
package casetest
