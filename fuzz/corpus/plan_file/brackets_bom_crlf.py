# ranks
((["forward", 1410,], ("backward", 0)),
	[],)
# end