// Package browser opens every page of the samples in Chromium: make e2e.
//
// It is a module of its own, outside go.work, because the browser's protocol
// takes longer to compile than the framework. It knows the samples by their
// addresses only: it builds and starts them as a user does.
//
// Each page is opened on a wide and on a narrow screen, in light and in dark
// colours, and is measured between them. It must log no error, be no wider than
// the screen, be usable with the keyboard alone, and have no violation that
// axe-core finds. A picture of each is left in bin/pages.
//
// It also checks files that deploy a program: the manifests of docs/guide/deploy
// with the types of Kubernetes, and the Dockerfile of mega new with Docker's
// parser. They are as heavy as the browser.
package browser
