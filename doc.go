// Package penstock works through many independent items against a slow, fragile or metered service.
package penstock
