module trimtab.io/harness/service

go 1.24
